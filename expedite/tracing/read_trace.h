// Reads back the traces that write_chrome_trace wrote.
#pragma once

#include <filesystem>
#include <vector>

#include "expedite/tracing/trace_json.h"

namespace expedite::tracing {

/// By rank, events in the order in which they stand; clocks are aligned, memory is left out. Throws Error
/// naming the file when it cannot be read, is larger than 100 MB, or holds an event that no schedule has.
[[nodiscard]] std::vector<RankTrace> read_chrome_trace(const std::filesystem::path& path);

}  // namespace expedite::tracing
