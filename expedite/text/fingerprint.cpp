#include "expedite/text/fingerprint.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdint>

namespace expedite::text {

struct Fingerprint::State {
  XXH3_state_t* hash = XXH3_createState();
  State() { XXH3_128bits_reset(hash); }
  ~State() { XXH3_freeState(hash); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Fingerprint::Fingerprint() : state_(std::make_unique<State>()) {}
Fingerprint::~Fingerprint() = default;

void Fingerprint::add(std::string_view bytes) {
  const auto size = static_cast<std::uint64_t>(bytes.size());
  XXH3_128bits_update(state_->hash, &size, sizeof(size));
  XXH3_128bits_update(state_->hash, bytes.data(), bytes.size());
}

std::string Fingerprint::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->hash);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string fingerprint_of(std::string_view bytes) {
  Fingerprint fingerprint;
  fingerprint.add(bytes);
  return fingerprint.hex();
}

}  // namespace expedite::text
