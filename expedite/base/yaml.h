// YAML read as JSON values, with the types of YAML's core schema, and JSON strings written as YAML.
#pragma once

#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace expedite {

/// Where a YAML text came from, for messages.
struct YamlSource {
  std::string name;       // a file, or the text of an override
  bool has_lines = true;  // add ":line"

  [[nodiscard]] std::string at(const YAML::Node& node) const { return at(node.Mark()); }
  [[nodiscard]] std::string at(const YAML::Mark& mark) const;
};

/// Parses a text of one document; an empty one gives a null node. Throws Error.
[[nodiscard]] YAML::Node load_yaml(const std::string& text, const YamlSource& source);

/// A plain scalar's value: null, a boolean, an integer, a number or else a string (YAML 1.2, section 10.3).
[[nodiscard]] nlohmann::json plain_scalar(std::string_view text);

/// Any node. Throws Error on duplicate keys, keys that are not scalars, infinities and NaN (not JSON), and
/// aliases that refer to themselves or blow up.
[[nodiscard]] nlohmann::json to_json(const YAML::Node& node, const YamlSource& source);

/// `text` as a YAML scalar that reads as this very string: plain where possible, else in double quotes.
[[nodiscard]] std::string yaml_string(const std::string& text);

}  // namespace expedite
