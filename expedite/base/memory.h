// How much memory there is for this process and those it starts.
#pragma once

#include <cstdint>
#include <filesystem>

namespace expedite {

/// What can be used now without swapping: of the machine, or of the control groups (versions 1 and 2) that
/// this process is in where one of them allows less. Memory that holds cached files counts as free. `root` is
/// where /proc and /sys lie. Throws Error when the system does not tell.
[[nodiscard]] std::int64_t available_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace expedite
