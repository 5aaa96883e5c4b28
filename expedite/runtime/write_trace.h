// The traces of all ranks of a run, gathered over MPI into one file.
#pragma once

#include <filesystem>
#include <vector>

#include "expedite/comm/communicator.h"
#include "expedite/tracing/trace.h"

namespace expedite::runtime {

/// What every rank gives, on rank 0's clock, as tracing::write_chrome_trace; rank 0 writes. Collective over
/// `world`.
void write_chrome_trace(const std::filesystem::path& path, const comm::Communicator& world,
                        std::vector<tracing::TraceEvent> events);

}  // namespace expedite::runtime
