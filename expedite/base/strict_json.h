// JSON from untrusted files: repeated keys and deep nesting are errors, where a lenient parser would pick one
// or exhaust memory.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace expedite {

/// Throws Error starting with `where` when `text` is not JSON, repeats a key within an object, or nests
/// deeper than `max_depth` arrays and objects.
[[nodiscard]] nlohmann::json parse_strict_json(std::string_view text, const std::string& where,
                                               int max_depth);

/// A whole file of at most 100 MB, parsed; depth up to 32.
[[nodiscard]] nlohmann::json read_strict_json(const std::filesystem::path& path);

/// A value in a message: as it would be written, cut to a length that fits. Made into text only when it is
/// printed.
struct Excerpt {
  const nlohmann::json& value;
};
[[nodiscard]] inline Excerpt excerpt(const nlohmann::json& value) {
  return {value};
}
[[nodiscard]] std::string to_string(const Excerpt& excerpt);

}  // namespace expedite

template <>
struct fmt::formatter<expedite::Excerpt> : fmt::formatter<std::string> {
  auto format(const expedite::Excerpt& excerpt, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(expedite::to_string(excerpt), context);
  }
};
