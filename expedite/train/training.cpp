#include "expedite/train/training.h"

#include <algorithm>
#include <chrono>
#include <numbers>

#include "expedite/base/log.h"
#include "expedite/comm/collectives.h"
#include "expedite/kernels/bf16_products.h"
#include "expedite/model/checkpoint_io.h"
#include "expedite/text/tokenizer_files.h"
#include "expedite/train/batches.h"
#include "expedite/train/ep_plan.h"
#include "expedite/train/lr_schedule.h"
#include "expedite/train/model_source.h"
#include "expedite/train/tokenized_text.h"
#include "expedite/train/tokenizer_choice.h"

namespace expedite::train {
namespace {

using Clock = std::chrono::steady_clock;

int compute_threads(const TrainConfig& config, const comm::ProcessGrid& grid) {
  return config.runtime.threads_per_rank > 0 ? static_cast<int>(config.runtime.threads_per_rank)
                                             : model::threads_per_rank(grid);
}

/// Loaded weights know the ids of the tokenizer they were trained with.
void warn_of_other_tokenizer(const TrainConfig& config) {
  const std::string own = model_tokenizer(config);
  if (!config.model.load_weights || config.data.tokenizer.empty() || own.empty() ||
      config.data.tokenizer == own) {
    return;
  }
  if (text::make_tokenizer(config.data.tokenizer)->fingerprint() !=
      text::make_tokenizer(own)->fingerprint()) {
    spdlog::warn(
        "data.tokenizer = {} is not the tokenizer in model.path = {}, whose ids the loaded weights know",
        config.data.tokenizer, config.model.path);
  }
}

std::string describe_loss(const std::string& tokenizer, const CorpusLoss& loss, std::int64_t bytes) {
  return fmt::format(
      "data.tokenizer = {} loses {} of {} bytes of the text ({:.3g} %): they are not in "
      "decode(encode(text)); "
      "first in {} at byte {}, where {} reads back as {}",
      tokenizer, loss.bytes, bytes, 100.0 * static_cast<double>(loss.bytes) / static_cast<double>(bytes),
      loss.source, loss.offset, loss.original, loss.reads_back);
}

/// Sets what all of the process shares, before anything is computed.
const TrainConfig& prepare_process(const TrainConfig& config, const comm::ProcessGrid& grid) {
  kernels::set_bf16_products(config.runtime.bf16_products);
  const auto way = static_cast<std::int64_t>(kernels::bf16_ways().matmul);
  if (comm::all_reduce(grid.world(), way, comm::ReduceOp::max) !=
          comm::all_reduce(grid.world(), way, comm::ReduceOp::min) &&
      grid.world().rank() == 0) {
    spdlog::warn(
        "ranks have unlike CPUs and multiply bf16 in unlike ways, here {}: name one in "
        "runtime.bf16_products for results that do not depend on where a rank runs",
        name_of(kernels::bf16_ways().matmul));
  }
  return config;
}

}  // namespace

std::string describe_weights(const hf::SafetensorsFolder& folder, model::Parameters& parameters) {
  const std::size_t files = folder.files().size();
  return fmt::format("{}{}: {} tensors, {:.2f} M parameters, as {}", folder.files().front().path().string(),
                     files > 1 ? fmt::format(" and {} more files", files - 1) : "",
                     parameters.tensors().size(), static_cast<double>(parameters.total_parameters()) / 1e6,
                     name_of(parameters.dtype()));
}

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

TrainingText::TrainingText(const TrainConfig& config, const comm::ProcessGrid& grid)
    : tokenizer_name(tokenizer_choice(config)),
      tokenizer(text::make_tokenizer(tokenizer_name)),
      corpus(read_corpus({.paths = config.data.path,
                          .extensions = config.data.extensions,
                          .validation_fraction = config.data.validation_fraction,
                          .seed = config.seed})) {
  static_cast<void>(model_of(config, tokenizer->vocab_size()));  // whether the ids fit, before the work
  if (grid.rank() == 0) {
    tokenizer_copy = TokenizerCopy(tokenizer_name);
    warn_of_other_tokenizer(config);
  }
  TokenizeOptions options{.threads = compute_threads(config, grid)};
  if (tokenizer_name != text::kByteTokenizer) {
    options.cache = std::filesystem::path(config.output_dir) / "token-cache";
  }
  train = tokenize_together(corpus.train, *tokenizer, grid, options);
  options.with_token_bytes = true;
  validation = tokenize_together(corpus.validation, *tokenizer, grid, options);
  const CorpusLoss lost = loss();
  const std::int64_t bytes = corpus.train_bytes + corpus.validation_bytes;
  if (lost.bytes > 0) {
    const std::string what = describe_loss(tokenizer_name, lost, bytes);
    require(
        static_cast<double>(lost.bytes) <= config.data.max_lost_fraction * static_cast<double>(bytes),
        "{}. Take a tokenizer that knows this text, or raise data.max_lost_fraction ({}) to train on what is "
        "left of it",
        what, config.data.max_lost_fraction);
    if (grid.rank() == 0) {
      spdlog::warn("{}. Bits per byte count the bytes that are left", what);
    }
  }
}

CorpusLoss TrainingText::loss() const {
  CorpusLoss both = train.loss;
  add_loss(both, validation.loss);
  return both;
}

bool TrainingText::loses_validation() const {
  constexpr double kMeasurable = 0.001;  // of the bytes; below, the third decimal of bits per byte is right
  return static_cast<double>(validation.loss.bytes) >
         kMeasurable * static_cast<double>(validation.text_bytes);
}

double StepReport::exposed_communication() const {
  return statistics.wall > 0
             ? static_cast<double>(statistics.exposed_communication) / static_cast<double>(statistics.wall)
             : 0.0;
}

Training::Training(const TrainConfig& config, const TrainingText& text, const comm::ProcessGrid& grid,
                   model::State state)
    : config_(prepare_process(config, grid)),
      text_(text),
      grid_(grid),
      model_(model_of(config, text.tokenizer->vocab_size())),
      parameters_(model_, config.dtype, model::expert_shard(model_, grid), state, pool_),
      threads_(compute_threads(config, grid)),
      ep_plan_(train::ep_plan(config, model_, grid, threads_)),
      engine_(parameters_, grid, pool_,
              {.threads = threads_,
               .ep_plan = ep_plan_,
               .builder = config.parallel.schedule,
               .collective_timeout_s = config.runtime.collective_timeout_s,
               .traced_steps = static_cast<int>(config.trace.steps)}) {
  if (grid.rank() == 0) {
    std::ranges::for_each(model_.notes, warn_once);
  }
  if (state == model::State::training) {
    sampler_.emplace(static_cast<std::int64_t>(text.train.tokens.size()), config.data.seq_length,
                     config.train.global_batch_size, config.seed);
  }
}

std::string Training::initialize() {
  if (!config_.model.load_weights) {
    parameters_.initialize(static_cast<std::uint64_t>(config_.seed));
    return fmt::format("random, seed {}", config_.seed);
  }
  const hf::SafetensorsFolder folder(config_.model.path);
  load_weights(parameters_, folder);
  return describe_weights(folder, parameters_);
}

model::StepOptions Training::step_options(std::int64_t step) const {
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
  return options;
}

StepReport Training::step(std::int64_t step, bool stop) {
  const Clock::time_point begin = Clock::now();
  std::vector<Window> windows;
  for (std::int64_t i = 0; i < config_.train.global_batch_size; ++i) {
    windows.push_back(sampler_->sequence(step, i));
  }
  const StepBatch batch =
      distribute(text_.train.tokens, windows, config_.train.micro_batch_size, grid_.rank(), grid_.size());
  model::StepOptions options = step_options(step);
  options.stop = stop;
  StepReport report;
  report.result = engine_.run(
      {.micro_batches = static_cast<int>(batch.micro_batches.size()),
       .batch_aux_loss = options.balance.aux_loss == model::AuxLoss::batch,
       .tokens = batch.total_tokens / grid_.size() / static_cast<int>(batch.micro_batches.size())},
      batch.input(), options);
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  report.statistics = engine_.trace().statistics();
  report.tokens = batch.total_tokens;
  report.learning_rate = options.adamw.learning_rate;
  return report;
}

std::optional<Validation> Training::evaluate(std::int64_t limit) {
  const std::vector<Window> windows = validation_windows(
      static_cast<std::int64_t>(text_.validation.tokens.size()), config_.data.seq_length, limit);
  Validation sum;  // loss: of all tokens
  const std::int64_t together = config_.train.micro_batch_size * grid_.size();
  for (std::size_t first = 0; first < windows.size(); first += static_cast<std::size_t>(together)) {
    const auto part = std::span(windows).subspan(
        first, std::min(windows.size() - first, static_cast<std::size_t>(together)));
    const StepBatch batch =
        distribute(text_.validation.tokens, part, config_.train.micro_batch_size, grid_.rank(), grid_.size());
    const model::StepResult result =
        engine_.run({.training = false, .tokens = config_.train.micro_batch_size * config_.data.seq_length},
                    batch.input(), {});
    sum.loss += result.loss * static_cast<double>(result.targets);
    sum.tokens += result.targets;
    for (const Window& window : part) {
      for (std::int64_t i = window.begin + 1; i <= window.begin + window.length; ++i) {
        sum.bytes += text_.validation.token_bytes[static_cast<std::size_t>(i)];
      }
    }
  }
  if (sum.bytes == 0) {
    return std::nullopt;
  }
  sum.bits_per_byte = sum.loss / std::numbers::ln2 / static_cast<double>(sum.bytes);
  sum.loss /= static_cast<double>(sum.tokens);
  return sum;
}

}  // namespace expedite::train
