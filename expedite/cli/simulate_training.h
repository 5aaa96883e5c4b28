// `expedite simulate CONFIG --cluster FILE`: the step of a training run, predicted from a probed cluster.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace expedite::cli {

struct SimulateTraining {
  std::string config;
  std::vector<std::string> overrides;
  std::string measured;  // a run folder
  std::string trace;     // a file to write
  std::string json;      // likewise
};

/// After the options of strategies, which cannot be given beside CONFIG; --trace and --json, which can, come
/// later.
void add_simulate_training_options(CLI::App& command, SimulateTraining& options);

/// The file that it names is read as a cluster.
[[nodiscard]] int simulate_training(const SimulateTraining& options, const std::string& cluster);

}  // namespace expedite::cli
