#include "expedite/plan/step_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "expedite/architecture/parameter_count.h"
#include "expedite/cost/bubble.h"
#include "expedite/plan/builtin_clusters.h"

namespace expedite::plan {
namespace {

Efficiencies perfect() {
  Efficiencies efficiencies;
  efficiencies.values.fill(1.0);
  for (const Constant none : {Constant::half_size, Constant::expert_half_size, Constant::layer_overhead,
                              Constant::layer_gap, Constant::moe_overhead, Constant::step_overhead}) {
    efficiencies.values[static_cast<std::size_t>(none)] = 0.0;
  }
  return efficiencies;
}

CostContext context_of(const char* model, const char* device, std::int64_t devices, const Workload& workload,
                       const Efficiencies& efficiencies = perfect()) {
  return {*architecture::find_builtin_model(model),
          make_machine(make_cluster(*find_device_facts(device), devices), devices),
          workload,
          Precision::bf16,
          efficiencies,
          default_software()};
}

struct PerToken {
  const char* model;
  std::int64_t seq;
  double gflop;  // Megatron-Bridge's performance summary: TFLOP/s over tokens/s of the same run
  bool with_prediction;
};

class ModelFlops : public testing::TestWithParam<PerToken> {};

TEST_P(ModelFlops, AreThoseThatRunsWerePublishedWith) {
  ModelConfig model = *architecture::find_builtin_model(GetParam().model);
  model.prediction_layers = GetParam().with_prediction ? 1 : 0;
  const Workload workload{.seq = GetParam().seq, .global_batch = 3};
  const double per_token = model_flops(model, workload) / 3.0 / static_cast<double>(workload.seq);
  EXPECT_NEAR(per_token * 1e-9, GetParam().gflop, 0.005 * GetParam().gflop);
}

INSTANTIATE_TEST_SUITE_P(
    Published, ModelFlops,
    testing::Values(PerToken{"llama3-8b", 8192, 51.5, false}, PerToken{"llama3-70b", 8192, 449.3, false},
                    PerToken{"llama3-405b", 8192, 2524.0, false},
                    PerToken{"qwen3-30b-a3b", 4096, 23.0, false},
                    PerToken{"qwen3-235b-a22b", 4096, 148.0, false}, PerToken{"kimi-k2", 4096, 204.5, false},
                    PerToken{"deepseek-v3", 4096, 249.7, false}, PerToken{"deepseek-v3", 4096, 260.0, true}));

TEST(StepCost, TakesItsFlopAtThePeakWhenNothingIsLost) {
  // One device, one micro-batch: products and attention at the peak, and nothing else but memory traffic.
  const Workload workload{.seq = 8192, .global_batch = 1};
  const CostContext context = context_of("llama3-8b", "h100", 1, workload);
  const StepCost cost = StepCoster(context).cost(Strategy{.zero = 0});
  const double peak = context.machine().peak_of(Precision::bf16);
  // Fused attention's backward makes the scores again: 3.5 of forward where the model's count has 3.
  const double attention = 4.0 * 32 * 8192.0 * (8192.0 + 1) / 2 * 4096;
  const double expected = (model_flops(context.model(), workload) + 0.5 * attention) / peak;
  EXPECT_NEAR(cost.seconds.work[Cause::matmul] + cost.seconds.work[Cause::attention], expected,
              0.005 * expected);
  EXPECT_EQ(cost.seconds.work[Cause::tensor] + cost.seconds.work[Cause::expert], 0.0);
  EXPECT_EQ(cost.seconds.bubble + cost.seconds.gradients + cost.seconds.sends, 0.0);
}

TEST(StepCost, ProductsAreBoundByMemoryWhenTheyAreThin) {
  const CostContext context = context_of("llama3-8b", "h100", 1, {.seq = 8192, .global_batch = 1});
  const double peak = context.machine().peak_of(Precision::bf16);
  EXPECT_NEAR(context.matmul(8192, 8192, 8192), 2.0 * std::pow(8192.0, 3) / peak, 1e-9);
  EXPECT_NEAR(context.matmul(1, 8192, 8192), 2.0 * (8192.0 * 8192 + 2 * 8192) / 3.35e12, 1e-9);
  Efficiencies half = perfect();
  half.values[static_cast<std::size_t>(Constant::half_size)] = 100.0;
  const CostContext lossy = context_of("llama3-8b", "h100", 1, {.seq = 8192, .global_batch = 1}, half);
  EXPECT_NEAR(lossy.matmul(8192, 4096, 8192) / context.matmul(8192, 4096, 8192),
              (4196.0 / 4096) * (8292.0 / 8192) * (8292.0 / 8192), 1e-9);
}

// With equal layers and nothing at the ends, bubbles are those that schedules have.
TEST(StepCost, BubblesAreThoseOfTheSchedules) {
  const Workload workload{.seq = 4096, .global_batch = 1024};
  const CostContext context = context_of("llama3-8b", "h100", 64, workload);
  const StepCoster coster(context);
  PieceTimes pieces;
  pieces.dense.forward[Cause::matmul] = 1.0;
  pieces.dense.backward[Cause::matmul] = 2.0;
  pieces.dense.weights = 1.0;
  pieces.dense.paired[Cause::matmul] = 3.0;
  const std::pair<Pipeline, schedule::PipelineKind> kinds[] = {
      {Pipeline::one_f_one_b, schedule::PipelineKind::one_f_one_b},
      {Pipeline::one_f_one_b, schedule::PipelineKind::interleaved},
      {Pipeline::zero_bubble_h1, schedule::PipelineKind::zero_bubble_h1},
      {Pipeline::dualpipe, schedule::PipelineKind::dualpipe},
      {Pipeline::adaptive, schedule::PipelineKind::adaptive_pipe}};
  for (const std::int32_t pp : {2, 4, 8}) {
    for (const auto& [pipeline, kind] : kinds) {
      const bool is_virtual =
          kind == schedule::PipelineKind::interleaved || kind == schedule::PipelineKind::adaptive_pipe;
      const std::int32_t vpp = is_virtual ? 2 : 1;
      const Strategy strategy{.pp = pp, .vpp = vpp, .dp = 64 / pp, .pipeline = pipeline};
      const double layers = 32.0 / pp;
      const schedule::PipelineShape shape{
          .kind = kind, .stages = pp, .virtual_stages = vpp, .micro_batches = 16 * pp};
      const cost::StageTimes times{.forward = layers, .input_grad = layers, .weight_grad = layers};
      EXPECT_NEAR(coster.cost(strategy, pieces).seconds.bubble, cost::bubble(shape, times), 1e-9)
          << to_string(strategy);
    }
    // Qi et al. (2024), table 1: H2 has none where forward, input and weight gradients take the same.
    const Strategy h2{.pp = pp, .dp = 64 / pp, .pipeline = Pipeline::zero_bubble_h2};
    EXPECT_NEAR(coster.cost(h2, pieces).seconds.bubble, 0.0, 1e-9);
  }
}

// 1F1B of unlike stages: one micro-batch passes all of them, the others follow at the slowest one's pace.
TEST(StepCost, UnlikeStagesWaitForTheSlowest) {
  const Workload workload{.seq = 4096, .global_batch = 1024};
  const CostContext context = context_of("llama3-8b", "h100", 64, workload);
  PieceTimes pieces;
  pieces.dense.forward[Cause::matmul] = 1.0;
  pieces.dense.backward[Cause::matmul] = 2.0;
  pieces.head.forward[Cause::matmul] = 2.0;
  pieces.head.backward[Cause::matmul] = 4.0;
  const StepCost cost = StepCoster(context).cost({.pp = 4, .dp = 16}, pieces);
  // 32 layers of 3 s and a head of 6 s: at best three stages of nine layers, 27 s, and one of less.
  const double all = 32 * 3.0 + 6.0;
  EXPECT_NEAR(cost.seconds.work.total() + cost.seconds.bubble, all + 63 * 27.0, 1e-9);
}

// Ranks of tp send a part of the activations each; without sequence parallelism their receivers gather them.
TEST(StepCost, SendsAPartPerTensorParallelRank) {
  const Workload workload{.seq = 4096, .global_batch = 1024};
  const CostContext context = context_of("llama3-8b", "h100", 64, workload);
  const Strategy strategy{.tp = 8, .pp = 4, .dp = 2};
  const double bytes = message_bytes(context, strategy);
  EXPECT_EQ(bytes, 2.0 * 4096 * 4096 / 8);
  const Machine& machine = context.reached();
  EXPECT_EQ(message_seconds(context, strategy, bytes), send_seconds(machine, 16, bytes));
  Strategy whole = strategy;
  whole.sequence_parallel = false;
  EXPECT_NEAR(message_seconds(context, whole, bytes),
              send_seconds(machine, 16, bytes) + gather_seconds(machine, machine.span(8, 1), 8 * bytes),
              1e-12);
}

TEST(StepCost, PartsAddUp) {
  const Workload workload{.seq = 4096, .global_batch = 4096};
  const CostContext context = context_of("deepseek-v3", "h800", 1024, workload,
                                         Calibration().of("H800-80GB", default_software().name));
  const StepCoster coster(context);
  int costed = 0;
  for (const std::int32_t tp : {1, 4}) {
    for (const std::int32_t pp : {1, 16}) {
      for (const std::int32_t ep : {8, 64}) {
        for (const std::int32_t chunks : {1, 4}) {
          for (const Recompute recompute : {Recompute::none, Recompute::half, Recompute::full}) {
            const Strategy s{
                .tp = tp, .pp = pp, .ep = ep, .dp = 1024 / tp / pp, .chunks = chunks, .recompute = recompute};
            ASSERT_EQ(illegal(s, context.model(), workload, 1024), std::nullopt);
            const StepCost cost = coster.cost(s);
            const StepSeconds& seconds = cost.seconds;
            EXPECT_NEAR(seconds.total,
                        seconds.work.total() + seconds.bubble + seconds.sends + seconds.gradients +
                            seconds.optimizer + seconds.overhead,
                        1e-9 * seconds.total);
            EXPECT_NEAR(cost.tokens_per_s_per_device, 4096.0 * 4096 / 1024 / seconds.total, 1e-6);
            EXPECT_TRUE(std::isfinite(cost.memory.total()));
            EXPECT_GT(cost.mfu, 0.0);
            EXPECT_LT(cost.mfu, 1.0);
            ++costed;
          }
        }
      }
    }
  }
  EXPECT_EQ(costed, 48);
}

TEST(StepCost, KnobsDoWhatTheyAreFor) {
  const Workload workload{.seq = 4096, .global_batch = 4096};
  const CostContext context = context_of("deepseek-v3", "h800", 1024, workload);
  const StepCoster coster(context);
  const Strategy base{.pp = 16, .ep = 64, .dp = 64, .micro_batch = 1};
  const StepCost plain = coster.cost(base);
  const auto with = [&](auto&& change) {
    Strategy s = base;
    change(s);
    return coster.cost(s);
  };
  const StepCost full = with([](Strategy& s) { s.recompute = Recompute::full; });
  EXPECT_GT(full.seconds.total, plain.seconds.total);
  EXPECT_LT(full.memory.total(), plain.memory.total());
  const StepCost activation = with([](Strategy& s) { s.recompute = Recompute::moe_act; });
  EXPECT_GT(activation.seconds.total, plain.seconds.total);
  EXPECT_LT(activation.seconds.total, 1.03 * plain.seconds.total);
  EXPECT_LT(activation.memory.total(), plain.memory.total());
  EXPECT_GT(activation.memory.total(), full.memory.total());
  EXPECT_EQ(activation.memory.activations, plain.memory.activations) << "of experts alone";
  // A token reaches fewer ranks than experts and fewer nodes than ranks.
  const StepCost ranks = with([](Strategy& s) { s.dispatcher = schedule::Dispatcher::zero_redundancy; });
  EXPECT_LT(ranks.seconds.expert_wire, plain.seconds.expert_wire);
  // Where chunks let both levels work at once.
  const auto in_chunks = [&](schedule::Dispatcher dispatcher) {
    return with([&](Strategy& s) {
      s.dispatcher = dispatcher;
      s.chunks = 4;
    });
  };
  EXPECT_LT(in_chunks(schedule::Dispatcher::hierarchical_dedup).seconds.expert_wire,
            in_chunks(schedule::Dispatcher::zero_redundancy).seconds.expert_wire);
  const StepCost chunked = with([](Strategy& s) { s.chunks = 4; });
  EXPECT_LT(chunked.seconds.work[Cause::expert], plain.seconds.work[Cause::expert]);
  EXPECT_LT(chunked.memory.communication, plain.memory.communication);
  // Inside a node all-to-alls are shorter than the compute that they can go under.
  const auto inside = [&](std::int32_t vpp, Pipeline pipeline) {
    return with([&](Strategy& s) {
      s.ep = 8;
      s.vpp = vpp;
      s.pipeline = pipeline;
    });
  };
  const StepCost adaptive = inside(2, Pipeline::adaptive);
  EXPECT_LT(adaptive.seconds.work[Cause::expert],
            0.5 * inside(2, Pipeline::one_f_one_b).seconds.work[Cause::expert]);
  const StepCost dual = inside(1, Pipeline::dualpipe);
  EXPECT_GT(dual.memory.weights, 1.5 * inside(1, Pipeline::one_f_one_b).memory.weights);
}

// What is exposed of all-to-alls is a part of them, those that recomputing repeats among them.
TEST(StepCost, ExposesNoMoreThanThereIs) {
  const Workload workload{.seq = 4096, .global_batch = 4096};
  for (const char* software : {"megatron-core-2025", "megatron-bridge-26.06"}) {
    const CostContext context =
        context_of("deepseek-v3", "h800", 1024, workload, builtin_calibration().of("H800-80GB", software));
    const StepCoster coster(context);
    for (const Pipeline pipeline : {Pipeline::one_f_one_b, Pipeline::adaptive}) {
      for (const std::int32_t chunks : {1, 4}) {
        double none = 0.0;
        for (const Recompute recompute : {Recompute::none, Recompute::half, Recompute::full}) {
          const Strategy s{.pp = 16,
                           .vpp = 2,
                           .ep = 64,
                           .dp = 64,
                           .chunks = chunks,
                           .recompute = recompute,
                           .pipeline = pipeline};
          const StepSeconds seconds = coster.cost(s).seconds;
          EXPECT_LE(seconds.work[Cause::expert], (1.0 + 1e-9) * seconds.expert_wire) << to_string(s);
          none = recompute == Recompute::none ? seconds.expert_wire : none;
          EXPECT_GE(seconds.expert_wire, none);
        }
      }
    }
  }
}

TEST(StepCost, BusyExpertsSlowAStep) {
  const Workload workload{.seq = 4096, .global_batch = 256};
  const Machine machine = make_machine(make_cluster(*find_device_facts("h800"), 64), 64);
  const ModelConfig& model = *architecture::find_builtin_model("qwen3-30b-a3b");
  const Efficiencies efficiencies = Calibration().of("H800-80GB", default_software().name);
  const Strategy strategy{.ep = 16, .dp = 64};
  const auto seconds = [&](double zipf, bool forced) {
    const CostContext context(
        model, machine, workload, Precision::bf16, efficiencies, default_software(),
        zipf > 0.0 ? ExpertLoad{cost::zipf_weights(model.experts, zipf), false} : ExpertLoad{}, forced);
    return StepCoster(context).cost(strategy).seconds.total;
  };
  EXPECT_LT(seconds(0.0, true), seconds(0.0, false));
  EXPECT_LT(seconds(0.0, false), seconds(0.5, false));
  EXPECT_LT(seconds(0.5, false), seconds(1.0, false));
}

TEST(Memory, CountsParametersGradientsAndOptimizer) {
  const Workload workload{.seq = 4096, .global_batch = 512};
  const CostContext context = context_of("qwen3-30b-a3b", "h100", 64, workload);
  const StepCoster coster(context);
  const ModelConfig& model = context.model();
  const auto experts = static_cast<double>(48 * 128 * mlp_parameters(model, 768));
  const double others = static_cast<double>(total_parameters(model)) - experts;
  const Strategy strategy{.ep = 8, .dp = 64};
  const auto memory = [&](std::int32_t zero) {
    Strategy s = strategy;
    s.zero = zero;
    return coster.cost(s).memory;
  };
  const double held = others + experts / 8;
  const double sharded = others / 64 + experts / 64;
  EXPECT_NEAR(memory(0).weights, 2 * held, 1e-4 * held);
  EXPECT_NEAR(memory(0).gradients, 4 * held, 1e-4 * held);
  EXPECT_NEAR(memory(0).optimizer, 12 * held, 1e-4 * held);
  EXPECT_NEAR(memory(1).optimizer, 12 * sharded, 1e-3 * sharded);
  EXPECT_NEAR(memory(1).gradients, 4 * held, 1e-4 * held);
  EXPECT_NEAR(memory(2).gradients, 4 * sharded, 1e-3 * sharded);
  EXPECT_NEAR(memory(3).weights, 2 * sharded, 1e-3 * sharded);
}

TEST(Memory, KnowsHowManyMicroBatchesAreInFlight) {
  const auto in_flight = [](Pipeline pipeline, std::int32_t vpp, int stage, double micro_batches = 100.0) {
    return micro_batches_in_flight({.pp = 8, .vpp = vpp, .pipeline = pipeline}, stage, micro_batches);
  };
  EXPECT_EQ(in_flight(Pipeline::one_f_one_b, 1, 0), 8);
  EXPECT_EQ(in_flight(Pipeline::one_f_one_b, 1, 7), 1);
  EXPECT_EQ(in_flight(Pipeline::one_f_one_b, 1, 0, 4), 4);
  // 1 + (p - 1) / (p v) times as much as without interleaving on the first stage (Narayanan et al.).
  EXPECT_EQ(in_flight(Pipeline::one_f_one_b, 2, 0), 8 * (1 + 7.0 / 16));
  EXPECT_EQ(in_flight(Pipeline::zero_bubble_h1, 1, 0), 8);
  EXPECT_EQ(in_flight(Pipeline::zero_bubble_h2, 1, 3), 15);
  EXPECT_EQ(in_flight(Pipeline::dualpipe, 1, 3), 9);
}

}  // namespace
}  // namespace expedite::plan
