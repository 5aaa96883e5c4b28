// Reads a YAML map key by key: every key must be there, right, and known.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "expedite/base/yaml.h"

namespace expedite::cost {

/// The entries of one map. Every function takes the value of a key and throws Error, naming the line, the
/// key's path and what is legal, when it is not there or not right. `source` must outlive it.
class YamlFields {
 public:
  /// `path` is the map's own, "" or "links[0]".
  YamlFields(const YAML::Node& node, std::string path, const YamlSource& source);

  /// The key is there and nobody has taken it.
  [[nodiscard]] bool has(const std::string& key) const { return left_.contains(key); }
  /// An integer from 1 to 2^53, which every reader of YAML holds exactly.
  [[nodiscard]] std::int64_t count(const std::string& key);
  /// A finite number above 0.
  [[nodiscard]] double positive(const std::string& key);
  /// Lists of such numbers.
  [[nodiscard]] std::vector<std::int64_t> counts(const std::string& key);
  [[nodiscard]] std::vector<double> positives(const std::string& key);
  [[nodiscard]] std::string text(const std::string& key);
  /// One of `choices`.
  [[nodiscard]] std::string choice(const std::string& key, const std::vector<std::string>& choices);
  [[nodiscard]] YamlFields map(const std::string& key);
  /// A list of maps.
  [[nodiscard]] std::vector<YamlFields> list(const std::string& key);
  /// Throws Error if the map has a key that nobody has taken.
  void finish() const;

 private:
  YAML::Node take(const std::string& key);
  [[nodiscard]] std::string path_of(const std::string& key) const;
  [[nodiscard]] std::int64_t to_count(const YAML::Node& value, const std::string& key) const;
  [[nodiscard]] double to_positive(const YAML::Node& value, const std::string& key) const;
  [[noreturn]] void refuse(const YAML::Node& value, const std::string& key, const std::string& legal) const;

  const YamlSource* source_;
  std::string path_;
  std::string where_;                         // the map itself
  std::map<std::string, YAML::Node> left_;    // not yet taken
  std::map<std::string, std::string> lines_;  // where each key stands
  std::vector<std::string> taken_;
};

}  // namespace expedite::cost
