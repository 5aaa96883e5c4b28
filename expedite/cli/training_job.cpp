#include "expedite/cli/training_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "expedite/base/log.h"
#include "expedite/cli/legal_values.h"
#include "expedite/comm/collectives.h"
#include "expedite/comm/machine.h"
#include "expedite/launch/lab.h"
#include "expedite/launch/launcher.h"
#include "expedite/train/progress.h"
#include "expedite/train/stop_signal.h"

namespace expedite::cli {
namespace {

int group_size(const train::TrainConfig& config, int ranks) {
  const std::int64_t size = config.parallel.expert_parallel_size;
  return size > 0 ? static_cast<int>(size) : ranks;
}

int run_as_rank(const TrainingJobOptions& options, const TrainingJob& job, const comm::Communicator& world) {
  const train::TrainConfig config = job.read();
  const comm::ProcessGrid grid(world, group_size(config, world.size()));
  if (!options.checked) {
    job.check(config, grid.placement(), comm::ranks_of_machine(world));
    comm::barrier(world);  // nothing is changed that another rank still looks at
  }
  return job.run(config, grid);
}

/// Where the ranks that --ranks or --lab ask for will be.
comm::Placement placement_of(const train::TrainConfig& config, const JobOptions& job, int ranks) {
  const comm::GridLayout layout(ranks, group_size(config, ranks));
  const std::int64_t per_node = job.lab.empty() ? ranks : launch::parse_lab_spec(job.lab).ranks_per_node;
  return comm::even_placement(layout, static_cast<int>(per_node));
}

}  // namespace

void add_training_job_options(CLI::App& command, TrainingJobOptions& options) {
  add_job_options(command, options.job);
  command.add_option("--set", options.overrides, "Override a key of the configuration: key.path=value")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  // From the process that starts the ranks.
  command.add_flag("--checked", options.checked)->group("");
  whole_number(command.add_option("--live-width", options.live_width), 1, 10'000)->group("");
}

int run_training_job(const TrainingJobOptions& options, const Context& context, const TrainingJob& job) {
  if (launch::detect_mpi_job()) {
    train::ignore_repeated_stops();
    return run_job(options.job,
                   [&](const comm::Communicator& world) { return run_as_rank(options, job, world); });
  }
  initialize_logging(0, 1);
  const train::TrainConfig config = job.read();
  JobOptions start = options.job;
  if (ranks_asked_for(start) == 0) {
    start.ranks = config.parallel.ranks;
  }
  const auto ranks = static_cast<int>(std::max<std::int64_t>(1, ranks_asked_for(start)));
  const comm::Placement placement = placement_of(config, start, ranks);
  if (!options.checked) {
    std::vector<int> here(static_cast<std::size_t>(ranks));
    std::iota(here.begin(), here.end(), 0);
    job.check(config, placement, here);
  }
  start.arguments = context.arguments;
  if (!options.checked) {
    start.arguments.emplace_back("--checked");
  }
  const std::optional<int> width = train::terminal_width(stdout);
  if (width && start.lab.empty()) {  // in a lab this program runs again, with the same terminal
    start.arguments.push_back(fmt::format("--live-width={}", *width));
  }
  return run_job(start, [&](const comm::Communicator& world) {
    return job.run(config, comm::ProcessGrid(world, group_size(config, world.size())));
  });
}

}  // namespace expedite::cli
