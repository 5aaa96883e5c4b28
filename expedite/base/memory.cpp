#include "expedite/base/memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "expedite/base/error.h"

namespace expedite {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// The number after `name` at a line's beginning: of "MemAvailable:  12 kB" or "inactive_file 12"; the file's
/// first number where `name` is empty.
std::optional<std::int64_t> number_in(const fs::path& file, const std::string& name = {}) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(name)) {
      continue;
    }
    const std::size_t begin = name.empty() ? 0 : line.find_first_not_of(" \t", name.size());
    if (begin == std::string::npos) {
      return std::nullopt;
    }
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(line.data() + begin, line.data() + line.size(), value);
    return error == std::errc() ? std::optional(value) : std::nullopt;  // "max" is no limit
  }
  return std::nullopt;
}

/// Names of a version's files.
struct Controller {
  const char* limit;
  const char* usage;
  const char* cached;  // in memory.stat
};
constexpr Controller kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr Controller kVersion2 = {"memory.max", "memory.current", "inactive_file"};

/// The least that the group and those around it leave. A group of another name space is looked for at the
/// mount's top, which is where a container sees its own.
std::int64_t left_in_group(const fs::path& mount, const std::string& group, const Controller& files) {
  std::int64_t left = kNoLimit;
  for (fs::path below = fs::path(group).relative_path();; below = below.parent_path()) {
    const fs::path folder = below.empty() ? mount : mount / below;
    const auto limit = number_in(folder / files.limit);
    const auto usage = number_in(folder / files.usage);
    if (limit && usage) {
      const std::int64_t cached = number_in(folder / "memory.stat", files.cached).value_or(0);
      left = std::min(left, std::max<std::int64_t>(0, *limit - *usage + cached));
    }
    if (below.empty()) {
      return left;
    }
  }
}

}  // namespace

std::int64_t available_memory_bytes(const fs::path& root) {
  constexpr std::int64_t kKiB = 1024;
  const auto machine = number_in(root / "proc/meminfo", "MemAvailable:");
  require(machine.has_value(), "{}: does not tell how much memory is available",
          (root / "proc/meminfo").string());
  std::int64_t left = *machine * kKiB;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/path", and of version 2 "0::/path"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      left = std::min(left, left_in_group(root / "sys/fs/cgroup", group, kVersion2));
    } else if (controllers.find(",memory,") != std::string::npos) {
      left = std::min(left, left_in_group(root / "sys/fs/cgroup/memory", group, kVersion1));
    }
  }
  return left;
}

}  // namespace expedite
