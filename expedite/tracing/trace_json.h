// Traces of all ranks in one file that Perfetto (ui.perfetto.dev) and chrome://tracing open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "expedite/tracing/trace.h"

namespace expedite::tracing {

/// From `time` on (nanoseconds, of the events' clock) the rank holds `bytes` of the category.
struct MemorySample {
  std::int64_t time = 0;
  MemoryCategory category = MemoryCategory::activations;
  std::int64_t bytes = 0;

  [[nodiscard]] bool operator==(const MemorySample&) const = default;
};

/// The events of one rank. `clock_offset` (nanoseconds, see comm::estimate_clock_offset) is added to its
/// times.
struct RankTrace {
  int rank = 0;
  std::int64_t clock_offset = 0;
  std::vector<TraceEvent> events;
  std::vector<MemorySample> memory = {};  // in order of time
};

/// For gathering traces over MPI, between machines of one byte order. unpack() throws an Error on anything
/// that pack() did not make.
[[nodiscard]] std::vector<std::byte> pack(const RankTrace& trace);
[[nodiscard]] RankTrace unpack(std::span<const std::byte> bytes);

/// The Chrome trace event format: a process per rank, a row per stream, a complete event per task named by
/// its label, with args layer, micro_batch, chunk, chunks, pass and bytes where they apply. Time 0 is the
/// earliest event's begin. Memory is a counter track per category, in MiB.
[[nodiscard]] std::string to_chrome_json(std::span<const RankTrace> ranks);
/// Writes that to a file; an Error names the file.
void write_chrome_trace(const std::filesystem::path& path, std::span<const RankTrace> ranks);

}  // namespace expedite::tracing
