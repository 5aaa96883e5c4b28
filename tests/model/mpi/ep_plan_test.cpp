// Whole steps under every dispatcher, pipeline, window, with and without recompute and shared experts:
// models, batches, skews, chunks and nodes at random, against the independent model in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "tests/model/mpi/comparison.h"

namespace expedite::model::tests {
namespace {

using schedule::ChunkPipeline;
using schedule::Dispatcher;
using schedule::EpPlan;
using schedule::MoeRecompute;

constexpr double kTolerance = 2e-5;
constexpr double kMargin = 1e-3;

constexpr std::array kPipelines = {ChunkPipeline::continuous, ChunkPipeline::pairwise, ChunkPipeline::none};

/// The nodes that ranks count as being on: numbers from 0, in the order in which ranks meet them.
std::vector<int> random_nodes(Dice& dice, int ranks) {
  std::vector<int> node_of;
  int nodes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    node_of.push_back(static_cast<int>(dice.between(0, nodes)));
    nodes = std::max(nodes, node_of.back() + 1);
  }
  return node_of;
}

/// All ranks in one expert-parallel group, mostly; nodes of any number and size, also of ranks that are not
/// neighbours in number.
const comm::ProcessGrid& random_grid(Dice& dice) {
  static std::map<std::pair<int, std::vector<int>>, std::unique_ptr<comm::ProcessGrid>> grids;
  const std::vector<int> sizes = divisors(job().size());
  const int expert_parallel_size =
      dice.between(0, 3) > 0
          ? sizes.back()
          : sizes[static_cast<std::size_t>(dice.between(0, static_cast<std::int64_t>(sizes.size()) - 1))];
  const std::vector<int> nodes = random_nodes(dice, job().size());
  std::unique_ptr<comm::ProcessGrid>& grid = grids[{expert_parallel_size, nodes}];
  if (!grid) {
    grid = std::make_unique<comm::ProcessGrid>(job(), expert_parallel_size, nodes);
  }
  return *grid;
}

/// Which experts tokens like.
enum class Skew : std::uint8_t {
  none,
  one_expert,  // all tokens choose the same expert, and with k > 1 others besides
  idle_rank,   // none chooses an expert of one rank
  falling,     // ever fewer choose an expert, as by Zipf's law
};
constexpr std::array kSkews = {Skew::none, Skew::one_expert, Skew::idle_rank, Skew::falling};

/// More than any difference of scores.
constexpr float kSure = 9.0F;

/// One layer's or two's of any legal shape. The selection bias makes the skew.
struct Drawn {
  ModelConfig config;
  std::vector<float> bias;
};
Drawn random_model(Dice& dice, bool shared_experts, Skew skew, int expert_parallel_size) {
  const std::int64_t experts = dice.between(1, 9);
  std::int64_t candidates = experts;
  std::vector<float> bias(static_cast<std::size_t>(experts));
  const comm::ExpertRange idle = comm::expert_range(
      experts, expert_parallel_size, static_cast<int>(dice.between(0, expert_parallel_size - 1)));
  for (std::int64_t e = 0; e < experts; ++e) {
    float& value = bias[static_cast<std::size_t>(e)];
    if (skew == Skew::falling) {
      value = -0.2F * static_cast<float>(std::log(e + 1));
    } else if (skew == Skew::idle_rank && idle.count < experts && e >= idle.begin && e < idle.end()) {
      value = -kSure;
      --candidates;
    }
  }
  if (skew == Skew::one_expert) {
    bias[static_cast<std::size_t>(dice.between(0, experts - 1))] = kSure;
    candidates = dice.flip() ? 1 : candidates;
  }
  nlohmann::json config = {{"hidden_size", dice.between(16, 40)},
                           {"num_hidden_layers", dice.between(1, 2)},
                           {"num_experts", experts},
                           {"num_experts_per_tok", dice.between(1, candidates)},
                           {"moe_intermediate_size", dice.between(1, 24)},
                           {"norm_topk_prob", dice.flip()},
                           {"scoring_func", dice.flip() ? "sigmoid" : "softmax"},
                           {"moe_router_enable_expert_bias", true}};
  if (shared_experts) {
    config.update({{"model_type", "qwen2_moe"},
                   {"shared_expert_intermediate_size", dice.between(1, 24)},
                   {"use_sliding_window", false}});
  }
  return {tiny_config(config), bias};
}

/// Chunks from one to more than there are tokens, of equal size or tapered, or chunks of a given size.
schedule::Chunking random_chunking(Dice& dice, std::int64_t most_tokens) {
  switch (dice.between(0, 3)) {
    case 0:
      return {.chunks = 1};
    case 1:
      return {.chunks = static_cast<int>(most_tokens + dice.between(1, 3)), .tapered = dice.flip()};
    case 2:
      return {.chunk_size = dice.between(1, most_tokens)};
    default:
      return {.chunks = static_cast<int>(dice.between(2, 5)), .tapered = dice.flip()};
  }
}

/// Window, recompute, shared experts: each for a model and batch of its own, under every dispatcher and
/// pipeline.
class EveryEpPlan : public testing::TestWithParam<std::tuple<int, MoeRecompute, bool>> {};

TEST_P(EveryEpPlan, AgreesWithTheReferenceAndWithItself) {
  const auto [window, recompute, shared_experts] = GetParam();
  const std::uint64_t seed =
      seed_of(6 * window + 2 * static_cast<int>(recompute) + static_cast<int>(shared_experts), job().size());
  Dice dice(seed);
  const comm::ProcessGrid& grid = random_grid(dice);
  const Skew skew = kSkews[static_cast<std::size_t>(dice.between(0, std::ssize(kSkews) - 1))];
  const Drawn drawn = random_model(dice, shared_experts, skew, grid.expert_parallel().size());
  const Problem problem = draw_problem(dice, drawn.config, static_cast<int>(dice.between(1, 2)), job().size(),
                                       kMargin, false, drawn.bias);
  SCOPED_TRACE(fmt::format("seed {} window {} recompute {} nodes {} bias {} model {}", seed, window,
                           name_of(recompute), grid.nodes(), fmt::join(drawn.bias, " "),
                           drawn.config.source.dump()));
  const Comparison comparison(problem, random_balance(dice), kTolerance);
  for (const Dispatcher dispatcher : schedule::kDispatchers) {
    std::optional<Observed> first;
    for (const ChunkPipeline pipeline : kPipelines) {
      const EpPlan plan = {.dispatcher = dispatcher,
                           .chunking = random_chunking(dice, problem.batch.most_tokens()),
                           .pipeline = pipeline,
                           .window = window,
                           .recompute = recompute};
      SCOPED_TRACE(fmt::format("{} {} N={} of {} tokens{}", name_of(dispatcher), name_of(pipeline),
                               plan.chunking.chunks, plan.chunking.chunk_size,
                               plan.chunking.tapered ? " tapered" : ""));
      Observed observed = comparison.run(DType::f32, grid, plan);
      // Forward does not depend on chunks, window or pipeline in a single bit.
      if (first) {
        EXPECT_EQ(observed.values(), first->values());
      } else {
        first = std::move(observed);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EveryEpPlan,
                         testing::Combine(testing::Range(1, 4),
                                          testing::Values(MoeRecompute::none, MoeRecompute::activation,
                                                          MoeRecompute::full),
                                          testing::Bool()));

}  // namespace
}  // namespace expedite::model::tests
