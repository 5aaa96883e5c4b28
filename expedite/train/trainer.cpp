#include "expedite/train/trainer.h"

#include <chrono>
#include <cmath>

#include "expedite/base/log.h"
#include "expedite/comm/collectives.h"
#include "expedite/kernels/bf16_products.h"
#include "expedite/launch/launcher.h"
#include "expedite/runtime/write_trace.h"
#include "expedite/train/memory_need.h"
#include "expedite/train/metrics.h"
#include "expedite/train/progress.h"
#include "expedite/train/stop_signal.h"
#include "expedite/train/training.h"
#include "expedite/train/training_state.h"
#include "expedite/train/yardstick.h"

namespace expedite::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The busiest expert's load over the mean one, averaged over layers: 1 is perfect balance.
double load_imbalance(const model::StepResult& result) {
  double total = 0.0;
  for (const auto& loads : result.expert_loads) {
    std::int64_t most = 0;
    std::int64_t sum = 0;
    for (const std::int64_t load : loads) {
      most = std::max(most, load);
      sum += load;
    }
    total += sum > 0
                 ? static_cast<double>(most) * static_cast<double>(loads.size()) / static_cast<double>(sum)
                 : 1.0;
  }
  return result.expert_loads.empty() ? 1.0 : total / static_cast<double>(result.expert_loads.size());
}

/// A run that is not resumed starts in an empty folder; what was there before is kept under another name.
void move_aside(const fs::path& run_dir) {
  if (!fs::exists(run_dir / "checkpoints") && !fs::exists(run_dir / "metrics.jsonl")) {
    return;
  }
  fs::path kept;
  for (int i = 1; kept.empty() || fs::exists(kept); ++i) {
    kept = run_dir.string() + ".previous-" + std::to_string(i);
  }
  fs::rename(run_dir, kept);
  spdlog::info(
      "a run of this name was there: moved to {} (to go on with it, move it back, and start with --resume)",
      kept.string());
}

/// The configuration as the run's folder keeps it: of use in any working directory, with the ranks there are.
std::string saved_config(const TrainConfig& config, int ranks) {
  TrainConfig saved = with_absolute_paths(config);
  saved.parallel.ranks = ranks <= launch::kMostRanks ? ranks : 0;  // on more machines than one starts
  return to_yaml(saved);
}

class Trainer {
 public:
  Trainer(const TrainConfig& config, const comm::ProcessGrid& grid, const TrainOptions& options)
      : config_(config),
        grid_(grid),
        options_(options),
        signal_({.rank = grid.rank(), .ranks = grid.size()}),
        text_(config, grid),
        training_(config, text_, grid) {}

  TrainSummary run();
  [[noreturn]] void fail_job(std::string_view reason) { training_.fail_job(reason); }

 private:
  [[nodiscard]] bool leads() const { return grid_.rank() == 0; }
  void prepare_run();
  void say_what_runs(const std::string& weights) const;
  void say_memory() const;
  void measure_yardsticks();
  void validate_before_training();
  std::optional<Validation> validate(std::int64_t sequences);
  void set_stop_limit();
  [[nodiscard]] bool out_of_time() const;
  void train_step(std::int64_t step);
  void count_step(std::int64_t step, const StepReport& report);
  /// What follows a step: trace, checkpoint, validation, metrics. Whether it saved.
  bool finish_step(std::int64_t done);
  [[nodiscard]] bool any_rank_was_signalled() const;
  void show_progress(std::int64_t done);

  const TrainConfig& config_;
  const comm::ProcessGrid& grid_;
  const TrainOptions& options_;
  StopSignal signal_;
  Clock::time_point begin_ = Clock::now();
  TrainingText text_;
  Training training_;
  std::optional<MetricsWriter> metrics_;  // on rank 0, as the progress line
  std::optional<Progress> progress_;
  nlohmann::json line_;  // of metrics.jsonl, for the step at hand
  TrainSummary summary_;
  std::int64_t first_step_ = 0;
  Clock::time_point loop_begin_;
  double longest_step_s_ = 0.0;
  double tokens_per_second_ = 0.0;
  double exposed_ = 0.0;
};

void Trainer::prepare_run() {
  const std::optional<Checkpoint> resumed =
      load_training_state(config_, options_.resume, training_.parameters(), grid_);
  std::string weights;
  if (resumed) {
    weights = describe_weights(hf::SafetensorsFolder(resumed->path), training_.parameters()) +
              ", with the optimizer's state";
    first_step_ = resumed->step;
  } else {
    weights = training_.initialize();
  }
  summary_.steps = first_step_;
  if (leads()) {
    if (!resumed) {
      move_aside(config_.run_dir());
    }
    fs::create_directories(config_.run_dir());
    replace_file(config_.run_dir() / "config.yaml", saved_config(config_, grid_.size()));
    metrics_.emplace(config_.run_dir() / "metrics.jsonl",
                     resumed ? std::optional(first_step_) : std::nullopt);
    progress_.emplace(stdout, Progress::Options{.live_width = options_.live_width});
    say_what_runs(weights);
    say_memory();
    measure_yardsticks();
  }
  validate_before_training();
}

void Trainer::validate_before_training() {
  if (first_step_ > 0 || (config_.train.eval_interval == 0 && !config_.model.load_weights)) {
    return;
  }
  if (const std::optional<Validation> before = validate(config_.train.eval_sequences)) {
    if (leads()) {
      spdlog::info("before the first step: validation loss {:.3f}, {:.3f} bits/byte over {} tokens",
                   before->loss, before->bits_per_byte, before->tokens);
    }
  }
}

std::optional<Validation> Trainer::validate(std::int64_t sequences) {
  signal_.set_limit(0);  // which is of steps
  const std::optional<Validation> validation = training_.evaluate(sequences);
  if (validation) {
    summary_.validation_bits_per_byte = validation->bits_per_byte;
  }
  set_stop_limit();
  return validation;
}

void Trainer::set_stop_limit() {
  const double limit = config_.runtime.stop_timeout_s;
  constexpr double kLongest = 1e6;
  const double seconds = limit > 0.0 ? std::ceil(std::max(limit, 2.0 * longest_step_s_)) : 0.0;
  signal_.set_limit(static_cast<unsigned>(std::min(seconds, kLongest)));
}

void Trainer::say_memory() const {
  std::vector<int> here;
  for (int rank = 0; rank < grid_.size(); ++rank) {
    if (grid_.node_of(rank) == grid_.node()) {
      here.push_back(rank);
    }
  }
  const MemoryNeed need = memory_need(config_, training_.model(), grid_.placement(), here,
                                      model::State::training, text_.corpus.bytes());
  spdlog::info("memory: about {:.2f} GB of {} rank{} of this node, as the schedule forecasts",
               static_cast<double>(need.total()) / 1e9, here.size(), here.size() == 1 ? "" : "s");
}

void Trainer::say_what_runs(const std::string& weights) const {
  const auto million = [](std::int64_t count) { return static_cast<double>(count) / 1e6; };
  const ModelConfig& model = training_.model();
  spdlog::info("{}: {:.2f} M parameters, {:.2f} M active per token; {} of {} layers with {} experts, top {}",
               config_.run_dir().string(), million(training_.parameters().total_parameters()),
               million(training_.parameters().active_parameters()),
               std::count(model.sparse.begin(), model.sparse.end(), true), model.layers, model.experts,
               model.experts_per_token);
  spdlog::info("{} ranks on {} nodes, expert parallel {}, {} threads per rank, {}", grid_.size(),
               grid_.nodes(), grid_.layout().expert_parallel_size(), training_.threads(),
               name_of(config_.dtype));
  if (config_.dtype == DType::bf16) {
    spdlog::info("{}", kernels::describe_bf16_products());
  }
  spdlog::info("text: {} files, {} training and {} validation bytes, {} training tokens ({:.2f} epochs)",
               text_.corpus.files, text_.corpus.train_bytes, text_.corpus.validation_bytes,
               text_.train.tokens.size(), training_.epochs());
  if (text_.corpus.skipped.total() > 0) {
    spdlog::warn("text left out: {}", text_.corpus.skipped.text());
  }
  spdlog::info("tokenizer: {}, {} ids; weights: {}", text_.tokenizer_name, text_.tokenizer->vocab_size(),
               weights);
  if (first_step_ > 0) {
    spdlog::info("resuming after step {}", first_step_);
  }
}

void Trainer::measure_yardsticks() {
  if (text_.corpus.validation_bytes == 0) {
    return;
  }
  if (text_.loses_validation()) {
    spdlog::warn(
        "no yardsticks: the tokenizer loses {} of the {} validation bytes, and bits per byte of what is left "
        "cannot be held against those of the whole text",
        text_.validation.loss.bytes, text_.corpus.validation_bytes);
    return;
  }
  summary_.markov2_bits_per_byte = markov2_bits_per_byte(text_.corpus.train, text_.corpus.validation);
  summary_.gzip9_bits_per_byte = gzip9_bits_per_byte(text_.corpus.validation);
  spdlog::info(
      "yardsticks on the validation text: order-2 Markov model {:.3f} bits/byte, gzip -9 {:.3f} bits/byte",
      *summary_.markov2_bits_per_byte, *summary_.gzip9_bits_per_byte);
}

bool Trainer::out_of_time() const {
  return config_.train.max_minutes > 0.0 && seconds_since(loop_begin_) > 60.0 * config_.train.max_minutes;
}

void Trainer::train_step(std::int64_t step) {
  const StepReport report = training_.step(step, signal_.requested() || out_of_time());
  summary_.steps = step + 1;
  summary_.loss = report.result.loss;
  summary_.stopped = report.result.stop && step + 1 < config_.train.steps;
  longest_step_s_ = std::max(longest_step_s_, report.seconds);
  set_stop_limit();
  if (report.result.stop) {
    signal_.wait_is_over();  // saving takes as long as it takes
  }
  if (leads()) {
    count_step(step, report);
  }
}

void Trainer::count_step(std::int64_t step, const StepReport& report) {
  // Smoothed over about ten steps for the eye; metrics.jsonl has each step's own.
  const double exposed = report.exposed_communication();
  const double rate = static_cast<double>(report.tokens) / report.seconds;
  const double weight = step == first_step_ ? 1.0 : 0.1;
  tokens_per_second_ += weight * (rate - tokens_per_second_);
  exposed_ += weight * (exposed - exposed_);
  const model::StepResult& result = report.result;
  line_ = {{"step", step + 1},
           {"loss", result.loss},
           {"aux_loss", result.aux_loss},
           {"z_loss", result.z_loss},
           {"gradient_norm", result.gradient_norm},
           {"load_imbalance", load_imbalance(result)},
           {"tokens", report.tokens},
           {"tokens_per_s", rate},
           {"step_ms", report.seconds * 1e3},
           {"exposed_communication", exposed},
           {"peak_bytes", training_.peak_bytes()},
           {"lr", report.learning_rate}};
  const TrainConfig::Trace& trace = config_.trace;
  if (step + 1 >= trace.first_step && step + 1 < trace.first_step + trace.steps) {
    line_["expert_loads"] = result.expert_loads;
  }
}

void Trainer::show_progress(std::int64_t done) {
  const double per_step = seconds_since(loop_begin_) / static_cast<double>(done - first_step_);
  progress_->update({.step = done,
                     .steps = config_.train.steps,
                     .loss = summary_.loss,
                     .validation_bits_per_byte = summary_.validation_bits_per_byte,
                     .tokens_per_second = tokens_per_second_,
                     .exposed_communication = grid_.size() > 1 ? std::optional(exposed_) : std::nullopt,
                     .seconds_left = per_step * static_cast<double>(config_.train.steps - done)});
}

TrainSummary Trainer::run() {
  prepare_run();
  loop_begin_ = Clock::now();
  set_stop_limit();
  bool saved = false;
  for (std::int64_t step = first_step_; step < config_.train.steps && !summary_.stopped; ++step) {
    train_step(step);
    saved = finish_step(step + 1);
  }
  if (progress_) {
    progress_->finish();
  }
  if (!saved) {
    spdlog::info("step {} of {}: nothing left to do", summary_.steps, config_.train.steps);
    static_cast<void>(validate(0));
  }
  summary_.seconds = seconds_since(begin_);
  return summary_;
}

bool Trainer::finish_step(std::int64_t done) {
  const TrainConfig::Train& plan = config_.train;
  const auto due = [done](std::int64_t interval) { return interval > 0 && done % interval == 0; };
  const bool last = done == plan.steps || summary_.stopped;
  // The steps asked for, or the last ones of a run that ends before them. A resumed run that starts behind
  // them leaves the trace that is there.
  const std::int64_t last_traced = config_.trace.first_step + config_.trace.steps - 1;
  if (config_.trace.steps > 0 && first_step_ < last_traced &&
      (done == last_traced || (last && done < last_traced))) {
    runtime::write_chrome_trace(config_.run_dir() / "trace.json", grid_.world(), training_.trace().events());
  }
  // Saved first: whoever sends a signal may not wait for a validation, and then gets none.
  const bool save_now = last || due(config_.checkpoint.save_interval);
  if (save_now) {
    summary_.checkpoint =
        save_training_state(config_, training_.parameters(), grid_, done, text_.tokenizer_copy);
  }
  if ((last && !any_rank_was_signalled()) || (!last && due(plan.eval_interval))) {
    if (const std::optional<Validation> now = validate(last ? 0 : plan.eval_sequences)) {
      line_["validation_bits_per_byte"] = now->bits_per_byte;
    }
  }
  if (leads()) {
    metrics_->append(line_);
    if (last || due(plan.log_interval) || done == first_step_ + 1) {
      show_progress(done);
    }
  }
  return save_now;
}

bool Trainer::any_rank_was_signalled() const {
  return comm::all_reduce<std::int64_t>(grid_.world(), signal_.requested() ? 1 : 0, comm::ReduceOp::max) > 0;
}

}  // namespace

TrainSummary train(const TrainConfig& config, const comm::ProcessGrid& grid, const TrainOptions& options) {
  Trainer trainer(config, grid, options);
  try {
    return trainer.run();
  } catch (const std::exception& error) {
    if (grid.size() > 1) {
      trainer.fail_job(error.what());
    }
    throw;
  }
}

}  // namespace expedite::train
