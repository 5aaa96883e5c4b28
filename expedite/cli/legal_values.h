// Options that take numbers or one of several names. What is legal stands in the help, and in the error that
// a value outside of it gets.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <span>
#include <string>

namespace expedite::cli {

/// Limits that several commands share. They are plain: far beyond any use, and before anything overflows.
inline constexpr std::int64_t kMostThreads = 1024;
inline constexpr std::int64_t kMostTokens = 1 << 24;
inline constexpr std::int64_t kMostHidden = 1 << 16;
inline constexpr std::int64_t kMostFfn = 1 << 18;
inline constexpr std::int64_t kMostExperts = 1 << 12;
inline constexpr std::int64_t kMostTopk = 1 << 10;
inline constexpr std::int64_t kMostLayers = 1 << 10;
inline constexpr std::int64_t kMostHeads = 1 << 10;
inline constexpr std::int64_t kMostVocab = 1 << 22;
inline constexpr std::int64_t kMostRounds = 1'000'000;

/// Decimal whole numbers from `low` to `high`. Returns the option.
CLI::Option* whole_number(CLI::Option* option, std::int64_t low, std::int64_t high);

/// The same, or `word`.
CLI::Option* whole_number_or(CLI::Option* option, std::int64_t low, std::int64_t high,
                             const std::string& word);

/// Decimal numbers from `low` to `high`, which NaN is not.
CLI::Option* number(CLI::Option* option, double low, double high);

/// One of `names`.
CLI::Option* one_of(CLI::Option* option, std::span<const std::string> names);
CLI::Option* one_of(CLI::Option* option, std::initializer_list<std::string> names);

}  // namespace expedite::cli
