#include "expedite/cli/legal_values.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "expedite/base/text.h"

namespace expedite::cli {
namespace {

template <typename Number>
std::optional<Number> parse(const std::string& text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

std::string refusal(const std::string& expected, const std::string& text) {
  return fmt::format("expected {}, not {}", expected, text.empty() ? "''" : text);
}

/// Rewrites a legal number in the one form that CLI11 reads as we do (it takes 010 for 8).
bool normalise(std::string& text, std::int64_t low, std::int64_t high) {
  const auto value = parse<std::int64_t>(text);
  if (!value || *value < low || *value > high) {
    return false;
  }
  text = std::to_string(*value);
  return true;
}

CLI::Option* check(CLI::Option* option, const std::string& type,
                   std::function<std::string(std::string&)> judge) {
  return option->type_name(type)->transform(CLI::Validator(std::move(judge), ""));
}

}  // namespace

CLI::Option* whole_number(CLI::Option* option, std::int64_t low, std::int64_t high) {
  return check(option, fmt::format("INT {}..{}", low, high), [low, high](std::string& text) {
    return normalise(text, low, high) ? std::string()
                                      : refusal(fmt::format("a whole number from {} to {}", low, high), text);
  });
}

CLI::Option* whole_number_or(CLI::Option* option, std::int64_t low, std::int64_t high,
                             const std::string& word) {
  return check(option, fmt::format("INT {}..{}|{}", low, high, word), [=](std::string& text) {
    return text == word || normalise(text, low, high)
               ? std::string()
               : refusal(fmt::format("a whole number from {} to {} or {}", low, high, word), text);
  });
}

CLI::Option* number(CLI::Option* option, double low, double high) {
  return check(option, fmt::format("NUMBER {:g}..{:g}", low, high), [low, high](std::string& text) {
    const auto value = parse<double>(text);
    return value && *value >= low && *value <= high
               ? std::string()
               : refusal(fmt::format("a number from {:g} to {:g}", low, high), text);
  });
}

CLI::Option* one_of(CLI::Option* option, std::span<const std::string> names) {
  const std::vector<std::string> known(names.begin(), names.end());
  return check(option, fmt::format("{}", fmt::join(known, "|")), [known](std::string& text) {
    return std::ranges::find(known, text) != known.end() ? std::string() : refusal(join_choices(known), text);
  });
}

CLI::Option* one_of(CLI::Option* option, std::initializer_list<std::string> names) {
  return one_of(option, std::span<const std::string>(names.begin(), names.size()));
}

}  // namespace expedite::cli
