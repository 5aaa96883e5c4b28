#include "expedite/cli/job.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "expedite/base/error.h"
#include "expedite/base/log.h"
#include "expedite/cli/legal_values.h"
#include "expedite/cli/usage.h"
#include "expedite/comm/environment.h"
#include "expedite/launch/lab.h"
#include "expedite/launch/launcher.h"

namespace expedite::cli {

namespace {

/// Most mistakes are every rank's. The lowest rank that fails ends the job while the others wait here, so
/// that what is wrong is told once.
void wait_for_lower_ranks(int rank) {
  if (rank > 0) {
    constexpr int kMost = 10;
    std::this_thread::sleep_for(std::chrono::seconds(1) +
                                std::min(rank, kMost) * std::chrono::milliseconds(200));
  }
}

}  // namespace

void add_ranks_option(CLI::App& command, std::int64_t& ranks) {
  whole_number(
      command.add_option("--ranks", ranks,
                         "Start this many ranks on this machine with mpirun; leave it away under mpirun "
                         "or srun"),
      1, launch::kMostRanks);
}

void add_job_options(CLI::App& command, JobOptions& options) {
  add_ranks_option(command, options.ranks);
  command.add_option("--lab", options.lab,
                     "Start the ranks on a cluster inside this machine: NODESxRANKS[@RATE], for example "
                     "2x2@2gbit; see docs/lab.md");
}

std::int64_t ranks_asked_for(const JobOptions& options) {
  if (options.lab.empty()) {
    return options.ranks;
  }
  const std::int64_t ranks = launch::parse_lab_spec(options.lab).ranks();
  require_usage(options.ranks == 0 || options.ranks == ranks,
                "--ranks {} beside --lab {}, which has {} ranks: leave --ranks away", options.ranks,
                options.lab, ranks);
  return ranks;
}

int run_job(const JobOptions& options, const std::function<int(const comm::Communicator& world)>& body) {
  const std::optional<launch::MpiJob> job = launch::detect_mpi_job();
  if (!options.lab.empty()) {
    require_usage(!job, "--lab {} inside a job that {} has started: leave --lab away", options.lab,
                  job->launcher);
    launch::become_lab(options.lab, launch::arguments_in_lab(options.arguments, ranks_asked_for(options)));
  }
  if (!job && options.ranks > 1) {
    return launch::start_ranks({.ranks = options.ranks, .arguments = options.arguments});
  }
  const comm::MpiEnvironment environment;
  const comm::Communicator world = comm::Communicator::world();
  try {
    initialize_logging(world.rank(), world.size());
    require(options.ranks == 0 || options.ranks == world.size(),
            "--ranks {} inside a job of {} ranks: leave --ranks away under mpirun or srun", options.ranks,
            world.size());
    return body(world);
  } catch (const std::exception& error) {
    if (world.size() == 1) {
      throw;  // nobody waits for this rank
    }
    wait_for_lower_ranks(world.rank());
    comm::MpiEnvironment::abort(1, error.what());
  }
}

}  // namespace expedite::cli
