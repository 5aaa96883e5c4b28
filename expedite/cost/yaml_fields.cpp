#include "expedite/cost/yaml_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "expedite/base/error.h"
#include "expedite/base/text.h"

namespace expedite::cost {
namespace {

bool is_utf8(const std::string& text) {
  const std::string valid_part =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
  return nlohmann::json::parse(valid_part) == text;
}

}  // namespace

YamlFields::YamlFields(const YAML::Node& node, std::string path, const YamlSource& source)
    : source_(&source), path_(std::move(path)), where_(source.at(node)) {
  require(node.IsMap(), "{}: {} must be a map of keys to values", where_, path_.empty() ? "the file" : path_);
  for (const auto& entry : node) {
    require(entry.first.IsScalar(), "{}: a key must be a name", source.at(entry.first));
    const std::string& key = entry.first.Scalar();
    require(left_.emplace(key, entry.second).second, "{}: the key {} is there twice; keep one",
            source.at(entry.first), path_of(key));
    lines_.emplace(key, source.at(entry.first));
  }
}

std::int64_t YamlFields::count(const std::string& key) {
  return to_count(take(key), key);
}

double YamlFields::positive(const std::string& key) {
  return to_positive(take(key), key);
}

std::vector<std::int64_t> YamlFields::counts(const std::string& key) {
  const YAML::Node value = take(key);
  if (!value.IsSequence()) {
    refuse(value, key, "a list of integers >= 1");
  }
  std::vector<std::int64_t> items;
  for (const auto& item : value) {
    items.push_back(to_count(item, key));
  }
  return items;
}

std::vector<double> YamlFields::positives(const std::string& key) {
  const YAML::Node value = take(key);
  if (!value.IsSequence()) {
    refuse(value, key, "a list of numbers > 0");
  }
  std::vector<double> items;
  for (const auto& item : value) {
    items.push_back(to_positive(item, key));
  }
  return items;
}

std::int64_t YamlFields::to_count(const YAML::Node& value, const std::string& key) const {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  const auto json = value.IsScalar() ? to_json(value, *source_) : nlohmann::json();
  if (!json.is_number_integer() || json < 1 || json > kMost) {
    refuse(value, key, "an integer >= 1");
  }
  return json.get<std::int64_t>();
}

double YamlFields::to_positive(const YAML::Node& value, const std::string& key) const {
  const auto json = value.IsScalar() ? to_json(value, *source_) : nlohmann::json();
  if (!json.is_number() || json.get<double>() <= 0.0) {
    refuse(value, key, "a number > 0");
  }
  return json.get<double>();
}

std::string YamlFields::text(const std::string& key) {
  const YAML::Node value = take(key);
  if (!value.IsScalar() || value.Scalar().empty() || !is_utf8(value.Scalar())) {
    refuse(value, key, "a text in UTF-8");
  }
  return value.Scalar();
}

std::string YamlFields::choice(const std::string& key, const std::vector<std::string>& choices) {
  const YAML::Node value = take(key);
  if (!value.IsScalar() || std::ranges::find(choices, value.Scalar()) == choices.end()) {
    refuse(value, key, join_choices(choices));
  }
  return value.Scalar();
}

YamlFields YamlFields::map(const std::string& key) {
  const YAML::Node value = take(key);
  return {value, path_of(key), *source_};
}

std::vector<YamlFields> YamlFields::list(const std::string& key) {
  const YAML::Node value = take(key);
  if (!value.IsSequence()) {
    refuse(value, key, "a list");
  }
  std::vector<YamlFields> items;
  for (const auto& item : value) {
    items.emplace_back(item, fmt::format("{}[{}]", path_of(key), items.size()), *source_);
  }
  return items;
}

void YamlFields::finish() const {
  if (!left_.empty()) {
    const std::string& key = left_.begin()->first;
    fail("{}: unknown key {}; the nearest known key is {}", lines_.at(key), path_of(key),
         nearest_name(key, taken_));
  }
}

YAML::Node YamlFields::take(const std::string& key) {
  taken_.push_back(key);
  auto entry = left_.extract(key);
  if (entry.empty()) {
    // A mistyped key is the likely reason.
    std::string hint;
    if (!left_.empty()) {
      std::vector<std::string> names;
      std::ranges::transform(left_, std::back_inserter(names), [](const auto& item) { return item.first; });
      const std::string near = nearest_name(key, names);
      hint = edit_distance(key, near) <= 2 ? fmt::format("; is {} meant?", near) : "";
    }
    fail("{}: the key {} is missing{}", where_, path_of(key), hint);
  }
  return entry.mapped();
}

std::string YamlFields::path_of(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

void YamlFields::refuse(const YAML::Node& value, const std::string& key, const std::string& legal) const {
  const char* const kind = value.IsMap() ? "a map" : value.IsSequence() ? "a list" : "nothing";
  fail("{}: {} = {}: expected {}", lines_.at(key), path_of(key), value.IsScalar() ? value.Scalar() : kind,
       legal);
}

}  // namespace expedite::cost
