#include "bench/train.h"

#include <fmt/core.h>
#include <omp.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/yardstick.h"
#include "expedite/base/error.h"
#include "expedite/base/median.h"
#include "expedite/base/random.h"
#include "expedite/model/engine.h"

namespace expedite::bench {
namespace {

nlohmann::json hugging_face_config(const TrainBenchOptions& options) {
  return {{"model_type", "qwen3_moe"},
          {"vocab_size", options.vocab},
          {"hidden_size", options.hidden},
          {"num_hidden_layers", options.layers},
          {"num_attention_heads", options.heads},
          {"num_key_value_heads", options.kv_heads},
          {"head_dim", options.hidden / options.heads},
          {"intermediate_size", options.ffn},
          {"moe_intermediate_size", options.ffn},
          {"num_experts", options.experts},
          {"num_experts_per_tok", options.topk},
          {"norm_topk_prob", true},
          {"max_position_embeddings", options.tokens}};
}

model::MicroBatch random_tokens(const TrainBenchOptions& options, int rank) {
  const Philox random(1, static_cast<std::uint64_t>(rank));
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i <= options.tokens; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random.bits(static_cast<std::uint64_t>(i)) %
                                               static_cast<std::uint64_t>(options.vocab)));
  }
  model::MicroBatch batch;
  const std::span<const std::int32_t> all(tokens);
  batch.append(all.first(all.size() - 1), all.subspan(1));
  return batch;
}

struct Measured {
  std::vector<double> seconds;
  std::vector<double> utilisation;
  std::array<std::vector<double>, schedule::kOps> by_op;
};

void print(const TrainBenchOptions& options, const Measured& measured, double flop) {
  const double seconds = median(measured.seconds);
  fmt::print("T={} H={} F={} E={} k={} layers={} heads={} {}, {} threads, {} steps\n", options.tokens,
             options.hidden, options.ffn, options.experts, options.topk, options.layers, options.heads,
             name_of(options.dtype), options.threads, options.steps);
  for (std::size_t op = 0; op < measured.by_op.size(); ++op) {
    const double spent = median(measured.by_op[op]);
    if (spent > 0.0) {
      fmt::print("  {:<16} {:8.1f} ms  {:5.1f} %\n", name_of(static_cast<schedule::Op>(op)), spent * 1e3,
                 100.0 * spent / seconds);
    }
  }
  fmt::print("step {:.1f} ms, {:.1f} GFLOP of the model, {:.1f} GFLOP/s: {:.1f} % of the matmul peak\n",
             seconds * 1e3, flop / 1e9, flop / seconds / 1e9, 100.0 * median(measured.utilisation));
}

void write_json(const TrainBenchOptions& options, const Measured& measured, double flop) {
  const nlohmann::json result = {{"tokens", options.tokens},
                                 {"hidden", options.hidden},
                                 {"ffn", options.ffn},
                                 {"experts", options.experts},
                                 {"topk", options.topk},
                                 {"layers", options.layers},
                                 {"dtype", name_of(options.dtype)},
                                 {"threads", options.threads},
                                 {"model_flop", flop},
                                 {"step_ms", median(measured.seconds) * 1e3},
                                 {"mfu", median(measured.utilisation)}};
  std::ofstream file(options.json_path);
  file << result.dump(2) << '\n';
  file.close();
  require(!file.fail(), "{}: cannot write the results", options.json_path);
}

}  // namespace

double model_flop(const TrainBenchOptions& options) {
  const auto tokens = static_cast<double>(options.tokens);
  const auto hidden = static_cast<double>(options.hidden);
  const double head_dim = hidden / static_cast<double>(options.heads);
  const double attention_weights =
      hidden * head_dim * static_cast<double>(2 * options.heads + 2 * options.kv_heads);
  const double expert_weights = 3.0 * hidden * static_cast<double>(options.ffn * options.topk);
  const double router_weights = hidden * static_cast<double>(options.experts);
  const double layer = 6.0 * tokens * (attention_weights + expert_weights + router_weights);
  const double scores = 12.0 * hidden * tokens * (tokens + 1.0) / 2.0;
  return static_cast<double>(options.layers) * (layer + scores) +
         6.0 * tokens * hidden * static_cast<double>(options.vocab);
}

int run_train_bench(const TrainBenchOptions& options, const comm::ProcessGrid& grid) {
  omp_set_num_threads(options.threads);
  const ModelConfig config = architecture::parse_model_config(hugging_face_config(options), "bench train");
  MemoryPool pool;
  model::Parameters parameters(config, options.dtype, model::expert_shard(config, grid),
                               model::State::training, pool);
  parameters.initialize(1);
  model::Engine engine(parameters, grid, pool, {.threads = options.threads});
  const std::vector<model::MicroBatch> batches = {random_tokens(options, grid.rank())};
  const std::int64_t total = options.tokens * grid.size();
  const auto peak = matmul_peak(options.dtype);
  const double flop = model_flop(options);

  Measured measured;
  for (int step = 0; step <= options.steps; ++step) {
    model::StepOptions step_options;
    step_options.adamw.step = step + 1;
    step_options.balance = {.aux_loss = model::AuxLoss::sequence, .aux_coefficient = 0.01};
    const double before = peak->sample();
    const double begin = seconds();
    static_cast<void>(engine.run({.tokens = options.tokens}, {batches, total, total, {total}}, step_options));
    const double spent = seconds() - begin;
    const double after = peak->sample();
    if (step == 0) {
      continue;  // creates primitives and fills the pool
    }
    measured.seconds.push_back(spent);
    measured.utilisation.push_back(flop / spent / (0.5 * (before + after)));
    const tracing::StepStatistics statistics = engine.trace().statistics();
    for (std::size_t op = 0; op < measured.by_op.size(); ++op) {
      measured.by_op[op].push_back(static_cast<double>(statistics.by_op[op]) * 1e-9);
    }
  }
  if (grid.rank() == 0) {
    print(options, measured, flop);
    if (!options.json_path.empty()) {
      write_json(options, measured, flop);
    }
  }
  return 0;
}

}  // namespace expedite::bench
