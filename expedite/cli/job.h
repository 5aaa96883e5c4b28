// Runs a command's body as one rank of a job: starts the ranks when asked to, joins them when they are there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "expedite/comm/communicator.h"

namespace expedite::cli {

struct JobOptions {
  std::int64_t ranks = 0;              // asked for; 0: those there are
  std::vector<std::string> arguments;  // this program's own, for starting it again as ranks
};

/// Under mpirun or srun, or for one rank: initialises MPI and calls `body`, whose result is the exit status;
/// an exception ends the whole job with its message. Otherwise starts the ranks and waits for them.
[[nodiscard]] int run_job(const JobOptions& options,
                          const std::function<int(const comm::Communicator& world)>& body);

}  // namespace expedite::cli
