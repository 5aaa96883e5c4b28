#include <fmt/core.h>

#include <filesystem>
#include <memory>

#include "bench/probe.h"
#include "expedite/base/durable_file.h"
#include "expedite/base/error.h"
#include "expedite/cli/bf16_option.h"
#include "expedite/cli/commands.h"
#include "expedite/cli/job.h"
#include "expedite/cli/legal_values.h"
#include "expedite/comm/process_grid.h"
#include "expedite/model/engine.h"

namespace expedite::cli {
namespace {

struct ProbeOptions {
  JobOptions job;
  std::string out = "cluster.yaml";
  int threads = 0;
  bool quick = false;
};

int run_probe(const ProbeOptions& options, const comm::Communicator& world) {
  const std::filesystem::path out = options.out;
  const auto folder = out.has_parent_path() ? out.parent_path() : std::filesystem::path(".");
  require(std::filesystem::is_directory(folder) && !std::filesystem::is_directory(out),
          "--out {}: {} must be a folder, and no folder may have the file's name", options.out,
          folder.string());
  const comm::ProcessGrid grid(world, 1);
  const cost::Cluster cluster = bench::probe_cluster(
      grid, {.quick = options.quick,
             .threads = options.threads > 0 ? options.threads : model::threads_per_rank(grid)});
  if (world.rank() == 0) {
    bench::print(cluster);
    replace_file(out, to_yaml(cluster));
    fmt::print("\nwrote {}\n", options.out);
  }
  return 0;
}

}  // namespace

void add_probe_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<ProbeOptions>();
  CLI::App* command = app.add_subcommand("probe", "Measure this cluster and write what it can do as YAML");
  add_job_options(*command, options->job);
  add_bf16_products_option(*command);
  command->add_option("--out", options->out, "The file to write")->capture_default_str();
  whole_number(command->add_option("--threads", options->threads,
                                   "Of each rank, as runtime.threads_per_rank; its cores if not given"),
               1, kMostThreads);
  command->add_flag("--quick", options->quick,
                    "Fewer sizes and shorter samples: some ten seconds, at the price of precision");
  command->callback([options, &context] {
    options->job.arguments = context.arguments;
    context.exit_code =
        run_job(options->job, [&](const comm::Communicator& world) { return run_probe(*options, world); });
  });
}

}  // namespace expedite::cli
