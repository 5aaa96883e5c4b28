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

// Rounding must not send a token to another expert.
constexpr double kF32Margin = 2.5e-3;
constexpr double kBf16Margin = 0.12;

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

/// Steps of one model, batch and grid at random under every dispatcher and pipeline.
class RandomStep {
 public:
  RandomStep(DType dtype, std::uint64_t seed, bool shared_experts)
      : dtype_(dtype),
        dice_(seed),
        grid_(random_grid(dice_)),
        drawn_(random_model(dice_, shared_experts,
                            kSkews[static_cast<std::size_t>(dice_.between(0, std::ssize(kSkews) - 1))],
                            grid_.expert_parallel().size())),
        problem_(draw_problem(dice_, drawn_.config, static_cast<int>(dice_.between(1, 2)), job().size(),
                              dtype == DType::bf16 ? kBf16Margin : kF32Margin, dtype == DType::bf16,
                              drawn_.bias)),
        comparison_(problem_, random_balance(dice_)),
        what_(fmt::format("seed {} {} nodes {} bias {} model {}", seed, name_of(dtype), grid_.nodes(),
                          fmt::join(drawn_.bias, " "), drawn_.config.source)) {}

  void run(int window, MoeRecompute recompute) {
    SCOPED_TRACE(what_);
    for (const Dispatcher dispatcher : schedule::kDispatchers) {
      std::optional<Observed> first;
      for (const ChunkPipeline pipeline : kPipelines) {
        const EpPlan plan = {.dispatcher = dispatcher,
                             .chunking = random_chunking(dice_, problem_.batch.most_tokens()),
                             .pipeline = pipeline,
                             .window = window,
                             .recompute = recompute};
        SCOPED_TRACE(fmt::format("{} {} N={} of {} tokens{} window {} recompute {}", name_of(dispatcher),
                                 name_of(pipeline), plan.chunking.chunks, plan.chunking.chunk_size,
                                 plan.chunking.tapered ? " tapered" : "", window, name_of(recompute)));
        Observed observed = comparison_.run(dtype_, grid_, plan);
        // Forward does not depend on chunks, window or pipeline in a single bit.
        if (first) {
          EXPECT_EQ(observed.values(), first->values());
        } else {
          first = std::move(observed);
        }
      }
    }
  }
  [[nodiscard]] double largest_error() const { return comparison_.largest_error(); }
  [[nodiscard]] int draw_window() { return static_cast<int>(dice_.between(1, 3)); }

 private:
  DType dtype_;
  Dice dice_;
  const comm::ProcessGrid& grid_;
  Drawn drawn_;
  Problem problem_;
  Comparison comparison_;
  std::string what_;
};

/// Says after all steps of a type how near the largest error came to what was allowed.
template <typename Params>
class EpPlanTest : public testing::TestWithParam<Params> {
 public:
  static void TearDownTestSuite() {
    if (job().rank() == 0) {
      fmt::print("largest error over its tolerance: {:.2f}\n", largest_error_);
    }
  }

 protected:
  static void report(const RandomStep& step) {
    largest_error_ = std::max(largest_error_, step.largest_error());
  }

 private:
  inline static double largest_error_ = 0.0;
};

/// Window, recompute, shared experts.
class EveryEpPlan : public EpPlanTest<std::tuple<int, MoeRecompute, bool>> {};

TEST_P(EveryEpPlan, AgreesWithTheReferenceAndWithItself) {
  const auto [window, recompute, shared_experts] = GetParam();
  const int number = 6 * window + 2 * static_cast<int>(recompute) + static_cast<int>(shared_experts);
  RandomStep step(DType::f32, seed_of(number, job().size()), shared_experts);
  step.run(window, recompute);
  report(step);
}

constexpr std::array kRecompute = {MoeRecompute::none, MoeRecompute::activation, MoeRecompute::full};
std::string name_of_case(MoeRecompute recompute, bool shared_experts) {
  return fmt::format("recompute_{}{}", name_of(recompute), shared_experts ? "_shared" : "");
}

INSTANTIATE_TEST_SUITE_P(Models, EveryEpPlan,
                         testing::Combine(testing::Range(1, 4), testing::ValuesIn(kRecompute),
                                          testing::Bool()),
                         [](const auto& test) {
                           return fmt::format("window_{}_{}", std::get<0>(test.param),
                                              name_of_case(std::get<1>(test.param), std::get<2>(test.param)));
                         });

/// Recompute, shared experts; windows at random.
class EpPlanInBf16 : public EpPlanTest<std::tuple<MoeRecompute, bool>> {};

TEST_P(EpPlanInBf16, AgreesWithinItsRoundingAndWithItself) {
  const auto [recompute, shared_experts] = GetParam();
  const int number = 100 + 2 * static_cast<int>(recompute) + static_cast<int>(shared_experts);
  RandomStep step(DType::bf16, seed_of(number, job().size()), shared_experts);
  step.run(step.draw_window(), recompute);
  report(step);
}

INSTANTIATE_TEST_SUITE_P(Models, EpPlanInBf16,
                         testing::Combine(testing::ValuesIn(kRecompute), testing::Bool()),
                         [](const auto& test) {
                           return name_of_case(std::get<0>(test.param), std::get<1>(test.param));
                         });

}  // namespace
}  // namespace expedite::model::tests
