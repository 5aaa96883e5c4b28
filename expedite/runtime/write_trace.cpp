#include "expedite/runtime/write_trace.h"

#include <utility>

#include "expedite/comm/clock.h"
#include "expedite/comm/collectives.h"
#include "expedite/tracing/trace_json.h"

namespace expedite::runtime {

void write_chrome_trace(const std::filesystem::path& path, const comm::Communicator& world,
                        std::vector<tracing::TraceEvent> events) {
  const tracing::RankTrace mine = {
      .rank = world.rank(), .clock_offset = comm::estimate_clock_offset(world), .events = std::move(events)};
  std::vector<tracing::RankTrace> all;
  for (const std::vector<std::byte>& packed : comm::gather_bytes(world, tracing::pack(mine), 0)) {
    all.push_back(tracing::unpack(packed));
  }
  if (world.rank() == 0) {
    tracing::write_chrome_trace(path, all);
  }
}

}  // namespace expedite::runtime
