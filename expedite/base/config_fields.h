// Typed access to the fields of a configuration: an error names the file, the field, what it holds and what
// is legal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/base/near_fields.h"
#include "expedite/base/strict_json.h"

namespace expedite {

class ConfigFields {
 public:
  static constexpr std::int64_t kMaxSize = std::numeric_limits<std::int32_t>::max();

  /// `where` is the file or section of `object` for messages, such as "config.json" or "config.json:
  /// rope_scaling".
  ConfigFields(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {
    require(object.is_object(), "{} must be an object of fields, not {}", where_, excerpt(object));
  }

  [[nodiscard]] const std::string& where() const { return where_; }
  /// Present, perhaps null.
  [[nodiscard]] bool contains(const char* field) const {
    asked_.insert(field);
    return object_.contains(field);
  }
  /// Present and not null.
  [[nodiscard]] bool has(const char* field) const { return find(field) != nullptr; }
  /// The value, or nullptr where the field is absent or null.
  [[nodiscard]] const nlohmann::json* find(const char* field) const {
    asked_.insert(field);
    const auto found = object_.find(field);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  [[nodiscard]] std::int64_t integer(const char* field, std::int64_t default_value, std::int64_t lowest = 1,
                                     std::int64_t highest = kMaxSize) const {
    return optional_integer(field, lowest, highest).value_or(default_value);
  }
  [[nodiscard]] std::optional<std::int64_t> optional_integer(const char* field, std::int64_t lowest = 1,
                                                             std::int64_t highest = kMaxSize) const {
    const nlohmann::json* value = find(field);
    if (value == nullptr) {
      return std::nullopt;
    }
    // Unsigned numbers beyond 63 bits would wrap around in get<int64>.
    const bool fits =
        value->is_number_integer() &&
        (!value->is_number_unsigned() || std::in_range<std::int64_t>(value->get<std::uint64_t>()));
    require(fits && value->get<std::int64_t>() >= lowest && value->get<std::int64_t>() <= highest,
            "{}: {} must be a whole number from {} to {}, not {}", where_, field, lowest, highest,
            excerpt(*value));
    return value->get<std::int64_t>();
  }

  [[nodiscard]] std::int64_t required_integer(const char* field, std::int64_t lowest = 1,
                                              std::int64_t highest = kMaxSize) const {
    const std::optional<std::int64_t> value = optional_integer(field, lowest, highest);
    require(value.has_value(), "{}: the field {} is missing{}", where_, field, hint(field));
    return *value;
  }

  /// A number from `lowest`, finite also in float32.
  [[nodiscard]] double number(const char* field, double default_value, double lowest) const {
    return optional_number(field, lowest).value_or(default_value);
  }
  [[nodiscard]] double required_number(const char* field, double lowest) const {
    const std::optional<double> value = optional_number(field, lowest);
    require(value.has_value(), "{}: the field {} is missing{}", where_, field, hint(field));
    return *value;
  }
  [[nodiscard]] std::optional<double> optional_number(const char* field, double lowest) const {
    const nlohmann::json* value = find(field);
    if (value == nullptr) {
      return std::nullopt;
    }
    require(value->is_number(), "{}: {} must be a number, not {}", where_, field, excerpt(*value));
    const auto result = value->get<double>();
    require(result >= lowest && result <= double{std::numeric_limits<float>::max()},
            "{}: {} must be {} or more, and fit into 32-bit floating point, not {}", where_, field, lowest,
            excerpt(*value));
    return result;
  }

  [[nodiscard]] bool boolean(const char* field, bool default_value) const {
    const nlohmann::json* value = find(field);
    if (value == nullptr) {
      return default_value;
    }
    require(value->is_boolean(), "{}: {} must be true or false, not {}", where_, field, excerpt(*value));
    return value->get<bool>();
  }

  [[nodiscard]] std::string text(const char* field, std::string_view default_value) const {
    const nlohmann::json* value = find(field);
    if (value == nullptr) {
      return std::string(default_value);
    }
    require(value->is_string(), "{}: {} must be text, not {}", where_, field, excerpt(*value));
    return value->get<std::string>();
  }

  /// To be called when all has been read: throws Error when a field is a slip of one that was asked for and
  /// that is not there, which would leave that one at its default. A slip beside the field itself is added to
  /// `notes`. Fields in `of_others` are never slips.
  void refuse_slips(std::span<const std::string> of_others, std::vector<std::string>& notes) const {
    const std::vector<std::string> asked(asked_.begin(), asked_.end());
    for (const auto& [name, value] : object_.items()) {
      if (asked_.contains(name) || std::ranges::find(of_others, name) != of_others.end()) {
        continue;
      }
      const std::string meant = slip_of(name, asked);
      require(meant.empty() || object_.contains(meant), "{}: unknown field {}; the nearest known field is {}",
              where_, name, meant);
      if (!meant.empty()) {
        notes.push_back(where_ + ": unknown field " + name + " has no effect; " + meant + " is read");
      }
    }
  }

 private:
  /// Names a field that may have been meant, for a missing one.
  [[nodiscard]] std::string hint(const char* field) const {
    const std::vector<std::string> missing = {field};
    for (const auto& [name, value] : object_.items()) {
      if (!slip_of(name, missing).empty()) {
        return "; is " + name + " meant for it?";
      }
    }
    return "";
  }

  const nlohmann::json& object_;
  std::string where_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace expedite
