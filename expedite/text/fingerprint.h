// Hashes of content, for names of files that depend on it (XXH3, 128 bits).
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace expedite::text {

class Fingerprint {
 public:
  Fingerprint();
  ~Fingerprint();
  Fingerprint(const Fingerprint&) = delete;
  Fingerprint& operator=(const Fingerprint&) = delete;

  /// Adds `bytes` and their number: ("ab", "c") is not ("a", "bc").
  void add(std::string_view bytes);
  /// 32 hexadecimal digits.
  [[nodiscard]] std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] std::string fingerprint_of(std::string_view bytes);

}  // namespace expedite::text
