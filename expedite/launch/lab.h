// Starts this program again inside a lab: a cluster of "nodes" on this machine (tools/lab, docs/lab.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace expedite::launch {

/// What of NODESxRANKS[@RATE] this program needs to know; tools/lab judges the rate.
struct LabSpec {
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;

  [[nodiscard]] std::int64_t ranks() const { return nodes * ranks_per_node; }
};

/// Throws Error with what is legal.
[[nodiscard]] LabSpec parse_lab_spec(std::string_view text);

/// This program's arguments for inside a lab of `ranks` ranks: "--ranks N" in the place of "--lab SPEC" and
/// of any --ranks.
[[nodiscard]] std::vector<std::string> arguments_in_lab(const std::vector<std::string>& arguments,
                                                        std::int64_t ranks);

/// Becomes `lab SPEC PROGRAM ARGUMENTS...`, this process's program being replaced, so that signals and the
/// exit status are the lab's. `lab` is the script, beside this program by default. Throws Error when it
/// cannot be run.
[[noreturn]] void become_lab(const std::string& spec, const std::vector<std::string>& arguments,
                             const std::filesystem::path& lab = {});

}  // namespace expedite::launch
