// Options by the names that other programs give them.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace expedite::cli {

struct OptionMeaning {
  std::vector<std::string_view>
      options;                          // ours, "--ranks" or "CONFIG"; the first that a command has is meant
  std::vector<std::string_view> names;  // others', without dashes, words joined by '-'
};

[[nodiscard]] std::span<const OptionMeaning> option_meanings();

/// What an option that the command does not have was meant to be, as advice: "the nearest is --ranks",
/// "--ranks is meant here", "a key of the configuration: --set optimizer.lr=VALUE".
[[nodiscard]] std::string advice_for_option(const CLI::App& command, const std::string& given);

}  // namespace expedite::cli
