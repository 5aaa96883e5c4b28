#include "expedite/train/trainer.h"

#include <chrono>
#include <cmath>
#include <fstream>
#include <numbers>

#include "expedite/base/error.h"
#include "expedite/base/log.h"
#include "expedite/comm/clock.h"
#include "expedite/comm/collectives.h"
#include "expedite/model/checkpoint_io.h"
#include "expedite/model/engine.h"
#include "expedite/runtime/trace_json.h"
#include "expedite/train/batches.h"
#include "expedite/train/ep_plan.h"
#include "expedite/train/lr_schedule.h"
#include "expedite/train/metrics.h"
#include "expedite/train/model_source.h"
#include "expedite/train/progress.h"
#include "expedite/train/stop_signal.h"
#include "expedite/train/text_corpus.h"
#include "expedite/train/training_state.h"
#include "expedite/train/yardstick.h"

namespace expedite::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// A run's text as tokens.
struct Text {
  std::unique_ptr<Tokenizer> tokenizer;
  Corpus corpus;
  TokenStream train;
  TokenStream validation;

  explicit Text(const TrainConfig& config)
      : tokenizer(make_tokenizer(config.data.tokenizer)),
        corpus(read_corpus({.paths = config.data.path,
                            .extensions = config.data.extensions,
                            .validation_fraction = config.data.validation_fraction,
                            .seed = config.seed})),
        train(tokenize(corpus.train, *tokenizer, false)),
        validation(tokenize(corpus.validation, *tokenizer, true)) {}
};

model::BalanceOptions balance_options(const TrainConfig::Moe& moe) {
  model::BalanceOptions balance;
  if (moe.router_load_balancing_type == LoadBalancing::aux_loss) {
    balance.aux_loss = model::AuxLoss::batch;
  } else if (moe.router_load_balancing_type == LoadBalancing::seq_aux_loss) {
    balance.aux_loss = model::AuxLoss::sequence;
  }
  balance.aux_coefficient = moe.aux_loss_coeff;
  balance.z_coefficient = moe.z_loss_coeff;
  return balance;
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
  spdlog::info("a run of this name was there: moved to {} (use --resume to continue it)", kept.string());
}

class Trainer {
 public:
  Trainer(const TrainConfig& config, const comm::ProcessGrid& grid, const TrainOptions& options)
      : config_(config),
        grid_(grid),
        options_(options),
        text_(config),
        sampler_(static_cast<std::int64_t>(text_.train.tokens.size()), config.data.seq_length,
                 config.train.global_batch_size, config.seed),
        model_(model_of(config, text_.tokenizer->vocab_size())),
        parameters_(model_, config.dtype, model::expert_shard(model_, grid), model::State::training, pool_),
        ep_plan_(ep_plan(config, model_, grid, threads())),
        engine_(parameters_, grid, pool_,
                {.threads = threads(),
                 .ep_plan = ep_plan_,
                 .collective_timeout_s = config.runtime.collective_timeout_s,
                 .traced_steps = static_cast<int>(config.trace.steps)}) {}

  TrainSummary run();
  [[noreturn]] void fail_job(std::string_view reason) { engine_.fail_job(reason); }

 private:
  [[nodiscard]] bool leads() const { return grid_.rank() == 0; }
  [[nodiscard]] int threads() const;
  void prepare_run();
  void say_what_runs() const;
  void measure_yardsticks();
  [[nodiscard]] model::StepOptions step_options(std::int64_t step) const;
  void train_step(std::int64_t step);
  void count_step(std::int64_t step, const model::StepResult& result, std::int64_t tokens, double seconds);
  /// What follows a step: trace, checkpoint, validation, metrics. Whether it saved.
  bool finish_step(std::int64_t done);
  [[nodiscard]] bool any_rank_was_signalled() const;
  void show_progress(std::int64_t done);
  /// On at most `limit` validation sequences; 0: on the whole text.
  [[nodiscard]] std::optional<double> evaluate(std::int64_t limit);
  void write_trace();

  const TrainConfig& config_;
  const comm::ProcessGrid& grid_;
  const TrainOptions& options_;
  StopSignal signal_;
  Clock::time_point begin_ = Clock::now();
  MemoryPool pool_;
  Text text_;
  TrainSampler sampler_;
  model::ModelConfig model_;
  model::Parameters parameters_;
  schedule::EpPlan ep_plan_;
  model::Engine engine_;
  std::optional<MetricsWriter> metrics_;  // on rank 0, as the progress line
  std::optional<Progress> progress_;
  nlohmann::json line_;  // of metrics.jsonl, for the step at hand
  TrainSummary summary_;
  std::int64_t first_step_ = 0;
  Clock::time_point loop_begin_;
  double tokens_per_second_ = 0.0;
  double exposed_ = 0.0;
};

int Trainer::threads() const {
  const std::int64_t wanted = config_.runtime.threads_per_rank;
  return wanted > 0 ? static_cast<int>(wanted) : model::threads_per_rank(grid_);
}

void Trainer::prepare_run() {
  if (leads() && !options_.resume) {
    move_aside(config_.run_dir());
  }
  comm::barrier(grid_.world());
  std::optional<std::int64_t> resumed;
  if (options_.resume) {
    resumed = load_training_state(config_, parameters_, grid_);
  }
  if (!resumed) {
    parameters_.initialize(static_cast<std::uint64_t>(config_.seed));
    if (config_.model.load_weights) {
      load_weights(parameters_, model::SafetensorsFolder(config_.model.path));
    }
  }
  first_step_ = resumed.value_or(0);
  summary_.steps = first_step_;
  if (leads()) {
    fs::create_directories(config_.run_dir());
    std::ofstream(config_.run_dir() / "config.yaml") << to_yaml(config_);
    metrics_.emplace(config_.run_dir() / "metrics.jsonl", resumed);
    progress_.emplace(stdout, Progress::Options{.live_width = options_.live_width});
    say_what_runs();
    measure_yardsticks();
  }
}

void Trainer::say_what_runs() const {
  const auto million = [](std::int64_t count) { return static_cast<double>(count) / 1e6; };
  spdlog::info("{}: {:.2f} M parameters, {:.2f} M active per token; {} of {} layers with {} experts, top {}",
               config_.run_dir().string(), million(parameters_.total_parameters()),
               million(parameters_.active_parameters()),
               std::count(model_.sparse.begin(), model_.sparse.end(), true), model_.layers, model_.experts,
               model_.experts_per_token);
  spdlog::info("{} ranks on {} nodes, expert parallel {}, {} threads per rank, {}", grid_.size(),
               grid_.nodes(), grid_.layout().expert_parallel_size(), threads(), name_of(config_.dtype));
  spdlog::info("text: {} files, {} training and {} validation bytes, {} training tokens ({:.2f} epochs)",
               text_.corpus.files, text_.corpus.train_bytes, text_.corpus.validation_bytes,
               text_.train.tokens.size(), sampler_.epochs_after(config_.train.steps - 1));
  if (first_step_ > 0) {
    spdlog::info("resuming after step {}", first_step_);
  }
}

void Trainer::measure_yardsticks() {
  if (text_.corpus.validation_bytes == 0) {
    return;
  }
  summary_.markov2_bits_per_byte = markov2_bits_per_byte(text_.corpus.train, text_.corpus.validation);
  summary_.gzip9_bits_per_byte = gzip9_bits_per_byte(text_.corpus.validation);
  spdlog::info(
      "yardsticks on the validation text: order-2 Markov model {:.3f} bits/byte, gzip -9 {:.3f} bits/byte",
      *summary_.markov2_bits_per_byte, *summary_.gzip9_bits_per_byte);
}

model::StepOptions Trainer::step_options(std::int64_t step) const {
  const TrainConfig::Optimizer& optimizer = config_.optimizer;
  const LrSchedule schedule = {.lr = optimizer.lr,
                               .min_lr = optimizer.min_lr,
                               .warmup_steps = optimizer.warmup_steps,
                               .steps = config_.train.steps};
  model::StepOptions options;
  options.balance = balance_options(config_.moe);
  options.clip_grad = optimizer.clip_grad;
  options.bias_update_rate = config_.moe.router_bias_update_rate;
  options.adamw = {.learning_rate = static_cast<float>(learning_rate(schedule, step)),
                   .beta1 = static_cast<float>(optimizer.beta1),
                   .beta2 = static_cast<float>(optimizer.beta2),
                   .epsilon = static_cast<float>(optimizer.eps),
                   .weight_decay = static_cast<float>(optimizer.weight_decay),
                   .step = step + 1};
  options.step = step + 1;
  const bool out_of_time =
      config_.train.max_minutes > 0.0 && seconds_since(loop_begin_) > 60.0 * config_.train.max_minutes;
  options.stop = signal_.requested() || out_of_time;
  return options;
}

void Trainer::train_step(std::int64_t step) {
  const Clock::time_point begin = Clock::now();
  std::vector<Window> windows;
  for (std::int64_t i = 0; i < config_.train.global_batch_size; ++i) {
    windows.push_back(sampler_.sequence(step, i));
  }
  const StepBatch batch =
      distribute(text_.train.tokens, windows, config_.train.micro_batch_size, grid_.rank(), grid_.size());
  const model::StepOptions options = step_options(step);
  const model::StepResult result = engine_.run(
      {.micro_batches = static_cast<int>(batch.micro_batches.size()),
       .batch_aux_loss = options.balance.aux_loss == model::AuxLoss::batch,
       .tokens = batch.total_tokens / grid_.size() / static_cast<int>(batch.micro_batches.size())},
      batch.input(), options);
  summary_.steps = step + 1;
  summary_.loss = result.loss;
  summary_.stopped = result.stop && step + 1 < config_.train.steps;
  if (leads()) {
    count_step(step, result, batch.total_tokens, seconds_since(begin));
    line_["lr"] = options.adamw.learning_rate;
  }
}

void Trainer::count_step(std::int64_t step, const model::StepResult& result, std::int64_t tokens,
                         double seconds) {
  // Smoothed over about ten steps for the eye; metrics.jsonl has each step's own.
  const runtime::StepStatistics statistics = engine_.trace().statistics();
  const double exposed = statistics.wall > 0 ? static_cast<double>(statistics.exposed_communication) /
                                                   static_cast<double>(statistics.wall)
                                             : 0.0;
  const double rate = static_cast<double>(tokens) / seconds;
  const double weight = step == first_step_ ? 1.0 : 0.1;
  tokens_per_second_ += weight * (rate - tokens_per_second_);
  exposed_ += weight * (exposed - exposed_);
  line_ = {{"step", step + 1},
           {"loss", result.loss},
           {"aux_loss", result.aux_loss},
           {"z_loss", result.z_loss},
           {"gradient_norm", result.gradient_norm},
           {"load_imbalance", load_imbalance(result)},
           {"tokens", tokens},
           {"tokens_per_s", rate},
           {"step_ms", seconds * 1e3},
           {"exposed_communication", exposed},
           {"peak_bytes", pool_.peak_bytes()}};
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

std::optional<double> Trainer::evaluate(std::int64_t limit) {
  const std::vector<Window> windows = validation_windows(
      static_cast<std::int64_t>(text_.validation.tokens.size()), config_.data.seq_length, limit);
  double bits = 0.0;
  std::int64_t bytes = 0;
  const std::int64_t together = config_.train.micro_batch_size * grid_.size();
  for (std::size_t first = 0; first < windows.size(); first += static_cast<std::size_t>(together)) {
    const auto part = std::span(windows).subspan(
        first, std::min(windows.size() - first, static_cast<std::size_t>(together)));
    const StepBatch batch =
        distribute(text_.validation.tokens, part, config_.train.micro_batch_size, grid_.rank(), grid_.size());
    const model::StepResult result =
        engine_.run({.training = false, .tokens = config_.train.micro_batch_size * config_.data.seq_length},
                    batch.input(), {});
    bits += result.loss * static_cast<double>(result.targets) / std::numbers::ln2;
    for (const Window& window : part) {
      for (std::int64_t i = window.begin + 1; i <= window.begin + window.length; ++i) {
        bytes += text_.validation.token_bytes[static_cast<std::size_t>(i)];
      }
    }
  }
  return bytes > 0 ? std::optional(bits / static_cast<double>(bytes)) : std::nullopt;
}

void Trainer::write_trace() {
  const runtime::RankTrace mine = {.rank = grid_.rank(),
                                   .clock_offset = comm::estimate_clock_offset(grid_.world()),
                                   .events = engine_.trace().events()};
  std::vector<runtime::RankTrace> all;
  for (const std::vector<std::byte>& packed : comm::gather_bytes(grid_.world(), runtime::pack(mine), 0)) {
    all.push_back(runtime::unpack(packed));
  }
  if (leads()) {
    runtime::write_chrome_trace(config_.run_dir() / "trace.json", all);
  }
}

TrainSummary Trainer::run() {
  prepare_run();
  loop_begin_ = Clock::now();
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
    summary_.validation_bits_per_byte = evaluate(0);
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
    write_trace();
  }
  // Saved first: whoever sends a signal may not wait for a validation, and then gets none.
  const bool save_now = last || due(config_.checkpoint.save_interval);
  if (save_now) {
    summary_.checkpoint = save_training_state(config_, parameters_, grid_, done);
  }
  if ((last && !any_rank_was_signalled()) || (!last && due(plan.eval_interval))) {
    summary_.validation_bits_per_byte = evaluate(last ? 0 : plan.eval_sequences);
    if (summary_.validation_bits_per_byte) {
      line_["validation_bits_per_byte"] = *summary_.validation_bits_per_byte;
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
