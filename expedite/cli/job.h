// Runs a command's body as one rank of a job: starts the ranks when asked to, joins them when they are there.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "expedite/comm/communicator.h"

namespace expedite::cli {

struct JobOptions {
  std::int64_t ranks = 0;  // asked for; 0: those there are
  std::string lab = {};    // NODESxRANKS[@RATE]: start the ranks on the nodes of a lab; empty: no lab
  std::vector<std::string> arguments = {};  // this program's own, for starting it again as ranks
};

/// The option --ranks alone.
void add_ranks_option(CLI::App& command, std::int64_t& ranks);

/// The options --ranks and --lab of a command that runs as a job.
void add_job_options(CLI::App& command, JobOptions& options);

/// How many ranks --ranks or --lab ask for; 0: neither does. Throws Error when they disagree.
[[nodiscard]] std::int64_t ranks_asked_for(const JobOptions& options);

/// Under mpirun or srun, or for one rank: initialises MPI and calls `body`, whose result is the exit status;
/// an exception ends the whole job with its message. Otherwise starts the ranks and waits for them; for a lab
/// this process becomes the lab and does not return.
[[nodiscard]] int run_job(const JobOptions& options,
                          const std::function<int(const comm::Communicator& world)>& body);

}  // namespace expedite::cli
