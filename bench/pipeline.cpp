#include "bench/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "expedite/base/error.h"
#include "expedite/cost/communication_share.h"
#include "expedite/schedule/coarse_pipeline.h"
#include "expedite/tracing/trace_json.h"

namespace expedite::bench {
namespace {

using cost::CommunicationKind;
using nlohmann::json;
using schedule::PipelineKind;
using schedule::PipelineShape;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Shares of the step, of all ranks.
struct Shares {
  double bubble = 0.0;
  double exposed = 0.0;
};

Shares shares_of(const cost::Simulation& simulation) {
  Shares shares;
  double ranks = 0.0;
  for (const cost::RankTimes& rank : simulation.ranks) {
    shares.bubble += rank.multiplicity * rank.bubble;
    shares.exposed += rank.multiplicity * rank.exposed;
    ranks += rank.multiplicity;
  }
  shares.bubble /= ranks * simulation.seconds;
  shares.exposed /= ranks * simulation.seconds;
  return shares;
}

std::int64_t most_bytes(const cost::Simulation& simulation) {
  std::int64_t most = 0;
  for (const cost::RankTimes& rank : simulation.ranks) {
    most = std::max(most, rank.total_peak_bytes);
  }
  return most;
}

void write_trace(const PipelineBenchOptions& options, PipelineKind kind, const cost::Simulation& simulation) {
  if (!options.trace_folder.empty()) {
    std::vector<tracing::RankTrace> traces = traces_of(simulation);
    for (std::size_t stage = 0; stage < traces.size(); ++stage) {
      traces[stage].rank = static_cast<int>(stage);  // what it shows is one rank of each stage
    }
    tracing::write_chrome_trace(options.trace_folder / fmt::format("{}.json", name_of(kind)), traces);
  }
}

// ---- Equal stages, coarse

cost::Simulation simulate_coarse(const PipelineShape& shape, const cost::StageTimes& stage) {
  // A micro-batch keeps a byte per stage until its input gradients, and one until its weight gradients.
  const std::vector<std::int64_t> bytes(static_cast<std::size_t>(parts_of(shape)), 1);
  std::vector<schedule::Schedule> schedules;
  std::vector<cost::RankClass> ranks;
  schedules.reserve(static_cast<std::size_t>(shape.stages));
  for (int s = 0; s < shape.stages; ++s) {
    schedules.push_back(schedule::build_coarse_pipeline({shape, bytes, bytes}, s));
    ranks.push_back({&schedules.back()});
  }
  const double unit = 1e-3 / shape.virtual_stages;
  const cost::TaskCosts costs = [&](const schedule::Schedule&, const schedule::Task& task) {
    // What a pair saves is taken from all that is in it alike.
    const double share =
        task.op == schedule::Op::paired_stage ? stage.paired() / (stage.forward + stage.backward()) : 1.0;
    const double ms = task.communication                        ? 0.0
                      : task.pass == schedule::Pass::forward    ? stage.forward
                      : task.pass == schedule::Pass::input_grad ? stage.input_grad
                                                                : stage.weight_grad;
    return cost::TaskCost{.seconds = ms * share * unit};
  };
  return cost::simulate(ranks, costs, {.events = true});
}

json coarse_line(const PipelineBenchOptions& options, PipelineKind kind) {
  const PipelineModel& model = options.model;
  const bool interleaves = kind == PipelineKind::interleaved || kind == PipelineKind::adaptive_pipe;
  const PipelineShape shape{kind, model.stages, interleaves ? model.virtual_stages : 1, model.micro_batches};
  const cost::Simulation simulation = simulate_coarse(shape, options.stage_ms);
  write_trace(options, kind, simulation);
  const auto least = std::ranges::min_element(simulation.ranks, {}, &cost::RankTimes::compute);
  json line = {
      {"schedule", name_of(kind)},
      {"step_ms", simulation.seconds * 1e3},
      {"bubble_ms", least->bubble * 1e3},
      {"formula_ms", nullptr},
      {"kept_micro_batches", static_cast<double>(most_bytes(simulation)) / 2.0 / shape.virtual_stages}};
  try {
    line["formula_ms"] = cost::bubble(shape, options.stage_ms);
  } catch (const Error&) {
    // It is not for these times; the simulation is.
  }
  const std::string formula = line["formula_ms"].is_null()
                                  ? std::string("-")
                                  : fmt::format("{:.2f}", line["formula_ms"].get<double>());
  fmt::print("{:<17} {:9.2f} {:9.2f} {:>9} {:9.1f}\n", name_of(kind), line["step_ms"].get<double>(),
             line["bubble_ms"].get<double>(), formula, line["kept_micro_batches"].get<double>());
  return line;
}

// ---- Layers

json fine_line(const PipelineBenchOptions& options, PipelineKind kind) {
  const SimulatedPipeline pipeline(options.model, kind);
  const auto begin = std::chrono::steady_clock::now();
  static_cast<void>(pipeline.simulate({.contention = options.contention}));
  const double simulate_seconds = seconds_since(begin);
  const cost::Simulation simulation = pipeline.simulate(
      {.contention = options.contention, .events = true, .memory = !options.trace_folder.empty()});
  write_trace(options, kind, simulation);
  const Shares shares = shares_of(simulation);
  const auto hidden = [&](CommunicationKind which, bool only_steady_state) {
    return cost::communication_share(simulation, which, only_steady_state).hidden();
  };
  const json line = {{"schedule", name_of(kind)},
                     {"step_ms", simulation.seconds * 1e3},
                     {"bubble_fraction", shares.bubble},
                     {"exposed_fraction", shares.exposed},
                     {"ep_hidden_steady", hidden(CommunicationKind::expert_parallel, true)},
                     {"ep_hidden", hidden(CommunicationKind::expert_parallel, false)},
                     {"pipeline_hidden", hidden(CommunicationKind::pipeline, false)},
                     {"gradients_hidden", hidden(CommunicationKind::gradients, false)},
                     {"peak_bytes", most_bytes(simulation)},
                     {"tasks", simulation.tasks},
                     {"build_s", pipeline.build_seconds()},
                     {"simulate_s", simulate_seconds}};
  const double took = pipeline.build_seconds() + simulate_seconds;
  fmt::print("{:<17} {:9.1f} {:7.1f} % {:7.1f} % {:8.1f} % {:6.1f} % {:7.1f} {:8} {:7.0f} {:10.0f}\n",
             name_of(kind), simulation.seconds * 1e3, 100.0 * shares.bubble, 100.0 * shares.exposed,
             100.0 * line["ep_hidden_steady"].get<double>(), 100.0 * line["ep_hidden"].get<double>(),
             static_cast<double>(most_bytes(simulation)) / (1 << 30), simulation.tasks, took * 1e3,
             static_cast<double>(simulation.tasks) / took);
  return line;
}

void print_header(const PipelineBenchOptions& options) {
  const PipelineModel& m = options.model;
  if (options.coarse) {
    const cost::StageTimes& t = options.stage_ms;
    fmt::print("{} stages, {} virtual stages, {} micro-batches; F={} B={} W={} F&B={} ms per stage\n",
               m.stages, m.virtual_stages, m.micro_batches, t.forward, t.backward(), t.weight_grad,
               t.paired());
    fmt::print("{:<17} {:>9} {:>9} {:>9} {:>9}\n", "schedule", "step ms", "bubble", "formula", "kept mb");
    return;
  }
  fmt::print(
      "{} layers ({} dense, {} more of multi-token prediction), {} stages, {} virtual stages, {} "
      "micro-batches, {} expert-parallel ranks on nodes of {}: {} ranks; compute {} times exchanges\n",
      m.layers, m.dense_layers, m.mtp_layers, m.stages, m.virtual_stages, m.micro_batches,
      m.expert_parallel_size, m.ranks_per_node, m.stages * m.expert_parallel_size * m.replicas,
      m.compute_to_communication);
  fmt::print("{:<17} {:>9} {:>9} {:>9} {:^19} {:>7} {:>8} {:>7} {:>10}\n", "", "step ms", "bubble", "exposed",
             "exchanges hidden", "kept", "tasks", "took", "tasks/s");
  fmt::print("{:<17} {:>9} {:>9} {:>9} {:>10} {:>8} {:>7} {:>8} {:>7}\n", "", "", "", "", "steady", "step",
             "GiB", "", "ms");
}

}  // namespace

int run_pipeline_bench(const PipelineBenchOptions& options) {
  print_header(options);
  json lines = json::array();
  for (const PipelineKind kind : options.kinds) {
    try {
      lines.push_back(options.coarse ? coarse_line(options, kind) : fine_line(options, kind));
    } catch (const Error& error) {
      fmt::print("{:<17} {}\n", name_of(kind), error.what());
    }
  }
  if (!options.json_path.empty()) {
    std::ofstream file(options.json_path);
    file << lines.dump(2) << '\n';
    file.close();
    require(!file.fail(), "{}: cannot write the results", options.json_path);
  }
  return lines.empty() ? 1 : 0;
}

}  // namespace expedite::bench
