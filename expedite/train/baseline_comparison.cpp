#include "expedite/train/baseline_comparison.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <span>

#include "expedite/comm/collectives.h"
#include "expedite/train/metrics.h"
#include "expedite/train/progress.h"
#include "expedite/train/stop_signal.h"
#include "expedite/train/training.h"

namespace expedite::train {
namespace {

using Clock = std::chrono::steady_clock;

/// The first makes the matmuls' primitives and fills the memory pool; the second finds what was left.
constexpr std::int64_t kWarmUpSteps = 2;

TrainConfig with_baseline_plan(TrainConfig config) {
  config.parallel.schedule = &schedule::step_builders().front();
  config.parallel.ep_plan = baseline_plan();
  return config;
}

class Comparer {
 public:
  Comparer(const TrainConfig& config, const comm::ProcessGrid& grid, const ComparisonOptions& options)
      : config_(config),
        baseline_config_(with_baseline_plan(config)),
        grid_(grid),
        options_(options),
        signal_({.rank = grid.rank(), .ranks = grid.size(), .what = "the comparison ends after this step"}),
        text_(config, grid),
        baseline_(baseline_config_, text_, grid),
        overlapped_(config_, text_, grid) {
    comparison_.dtype = config.dtype;
    comparison_.warm_up = kWarmUpSteps;
    comparison_.baseline.plan = baseline_.ep_plan();
    comparison_.overlapped.plan = overlapped_.ep_plan();
  }

  Comparison run();
  [[noreturn]] void fail_job(std::string_view reason) { overlapped_.fail_job(reason); }

 private:
  [[nodiscard]] bool leads() const { return grid_.rank() == 0; }
  [[nodiscard]] std::int64_t steps() const { return kWarmUpSteps + options_.steps; }
  /// Whether to go on.
  bool step(std::int64_t step, Training& training, Contender& contender, const char* name);
  void show_progress(std::int64_t done);

  const TrainConfig& config_;
  const TrainConfig baseline_config_;
  const comm::ProcessGrid& grid_;
  const ComparisonOptions& options_;
  StopSignal signal_;
  TrainingText text_;
  Training baseline_;
  Training overlapped_;
  std::optional<MetricsWriter> metrics_;  // on rank 0, as the progress line
  std::optional<Progress> progress_;
  Clock::time_point begin_;
  Comparison comparison_;
};

bool Comparer::step(std::int64_t step, Training& training, Contender& contender, const char* name) {
  comm::barrier(grid_.world());
  const StepReport report = training.step(step, signal_.requested());
  std::array<std::int64_t, 4> sums = {report.statistics.exposed_communication, report.statistics.wall,
                                      report.statistics.rows.intra_node, report.statistics.rows.inter_node};
  comm::all_reduce(grid_.world(), std::span<std::int64_t>(sums), comm::ReduceOp::sum);
  comparison_.tokens = report.tokens;
  contender.steps.push_back(
      {.loss = report.result.loss,
       .gradient_norm = report.result.gradient_norm,
       .seconds = report.seconds,
       .exposed_communication = static_cast<double>(sums[0]) / static_cast<double>(sums[1]),
       .rows = {.intra_node = sums[2], .inter_node = sums[3]}});
  if (leads()) {
    const ComparedStep& done = contender.steps.back();
    metrics_->append({{"step", step + 1},
                      {"plan", name},
                      {"loss", done.loss},
                      {"gradient_norm", done.gradient_norm},
                      {"step_ms", done.seconds * 1e3},
                      {"tokens_per_s", static_cast<double>(report.tokens) / done.seconds},
                      {"exposed_communication", done.exposed_communication},
                      {"bytes_intra_node", done.rows.intra_node},
                      {"bytes_inter_node", done.rows.inter_node}});
  }
  return !report.result.stop;
}

void Comparer::show_progress(std::int64_t done) {
  const ComparedStep& last = comparison_.overlapped.steps.back();
  const double per_step =
      std::chrono::duration<double>(Clock::now() - begin_).count() / static_cast<double>(done);
  progress_->update({.what = "comparison",
                     .step = done,
                     .steps = steps(),
                     .loss = last.loss,
                     .tokens_per_second = static_cast<double>(comparison_.tokens) / last.seconds,
                     .exposed_communication = last.exposed_communication,
                     .seconds_left = per_step * static_cast<double>(steps() - done)});
}

Comparison Comparer::run() {
  baseline_.initialize();
  overlapped_.initialize();
  if (leads()) {
    metrics_.emplace(config_.run_dir() / "comparison.jsonl");
    progress_.emplace(stdout, Progress::Options{.live_width = options_.live_width});
    progress_->note(fmt::format("comparing with the baseline: {} steps of each, by turns", steps()));
  }
  begin_ = Clock::now();
  bool go_on = true;
  for (std::int64_t number = 0; number < steps() && go_on; ++number) {
    const auto one = [&] { return step(number, baseline_, comparison_.baseline, "baseline"); };
    const auto other = [&] { return step(number, overlapped_, comparison_.overlapped, "overlapped"); };
    // Both, also after a signal.
    const bool first = number % 2 == 0 ? one() : other();
    const bool second = number % 2 == 0 ? other() : one();
    go_on = first && second;
    if (leads()) {
      show_progress(number + 1);
    }
  }
  if (go_on) {
    const auto bits_per_byte = [](const std::optional<Validation>& validation) {
      return validation ? std::optional(validation->bits_per_byte) : std::nullopt;
    };
    comparison_.baseline.validation_bits_per_byte =
        bits_per_byte(baseline_.evaluate(config_.train.eval_sequences));
    comparison_.overlapped.validation_bits_per_byte =
        bits_per_byte(overlapped_.evaluate(config_.train.eval_sequences));
  }
  if (progress_) {
    progress_->finish();
  }
  return comparison_;
}

}  // namespace

TrainConfig::EpPlan baseline_plan() {
  return {.dispatcher = Dispatcher::alltoall,
          .moe_num_chunks = {.chunks = 1},
          .moe_chunk_pipeline = schedule::ChunkPipeline::none};
}

Comparison compare_with_baseline(const TrainConfig& config, const comm::ProcessGrid& grid,
                                 const ComparisonOptions& options) {
  Comparer comparer(config, grid, options);
  try {
    return comparer.run();
  } catch (const std::exception& error) {
    if (grid.size() > 1) {
      comparer.fail_job(error.what());
    }
    throw;
  }
}

}  // namespace expedite::train
