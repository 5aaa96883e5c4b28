#include "expedite/plan/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "expedite/plan/builtin_clusters.h"
#include "expedite/plan/plan_report.h"

namespace expedite::plan {
namespace {

CostContext search_context(const char* model, const char* device, std::int64_t devices,
                           const Workload& workload) {
  const DeviceFacts& facts = *find_device_facts(device);
  return {*architecture::find_builtin_model(model),
          make_machine(make_cluster(facts, devices), devices),
          workload,
          Precision::bf16,
          builtin_calibration().of(facts.kind, default_software().name),
          default_software()};
}

SearchSpace small_space(bool moe) {
  SearchSpace space{
      .tp = {1, 2, 4},
      .cp = {1, 2},
      .pp = {1, 2, 4, 8},
      .vpp = {1, 2},
      .ep = {1},
      .etp = {1},
      .zero = {0, 1, 3},
      .micro_batch = {1, 2},
      .chunks = {1},
      .recompute = {Recompute::none, Recompute::full},
      .pipeline = {Pipeline::one_f_one_b, Pipeline::zero_bubble_h1, Pipeline::dualpipe, Pipeline::adaptive},
      .dispatcher = {schedule::Dispatcher::alltoall}};
  if (moe) {
    space.ep = {1, 4, 16};
    space.etp = {1, 2};
    space.chunks = {1, 4};
    space.dispatcher = {schedule::Dispatcher::alltoall, schedule::Dispatcher::hierarchical_dedup};
  }
  return space;
}

/// Every legal strategy of the space that fits, fastest first, by going through all of them one by one.
std::vector<Candidate> by_hand(const CostContext& context, const SearchSpace& space, std::int64_t devices,
                               double memory_limit) {
  const StepCoster coster(context);
  std::vector<Candidate> all;
  Strategy s;
  for (const auto tp : space.tp)
    for (const auto cp : space.cp)
      for (const auto pp : space.pp)
        for (const auto vpp : space.vpp)
          for (const auto ep : space.ep)
            for (const auto etp : space.etp)
              for (const auto zero : space.zero)
                for (const auto mb : space.micro_batch)
                  for (const auto chunks : space.chunks)
                    for (const auto recompute : space.recompute)
                      for (const auto pipeline : space.pipeline)
                        for (const auto dispatcher : space.dispatcher) {
                          const std::int32_t dp = static_cast<std::int32_t>(devices / (tp * cp * pp));
                          s = {.tp = tp,
                               .cp = cp,
                               .pp = pp,
                               .vpp = vpp,
                               .ep = ep,
                               .etp = etp,
                               .dp = dp,
                               .zero = zero,
                               .micro_batch = mb,
                               .chunks = chunks,
                               .recompute = recompute,
                               .pipeline = pipeline,
                               .dispatcher = dispatcher};
                          if (s.devices() == devices && !(zero > 0 && dp * cp == 1) &&
                              !illegal(s, context.model(), context.workload(), devices)) {
                            all.push_back({s, coster.cost(s)});
                          }
                        }
  std::erase_if(all, [&](const Candidate& c) { return c.cost.memory.total() > memory_limit; });
  std::ranges::stable_sort(all, {}, [](const Candidate& c) { return c.cost.seconds.total; });
  return all;
}

/// Without those that only another dispatcher tells from a faster one, within a thousandth.
std::vector<Candidate> distinct(const std::vector<Candidate>& all) {
  std::vector<Candidate> kept;
  for (const Candidate& candidate : all) {
    const bool known = std::ranges::any_of(kept, [&](const Candidate& other) {
      Strategy same = candidate.strategy;
      same.dispatcher = other.strategy.dispatcher;
      const double slower = candidate.cost.seconds.total / other.cost.seconds.total;
      const double larger = candidate.cost.memory.total() / other.cost.memory.total();
      return same == other.strategy && slower < 1.001 && larger < 1.001 && larger > 0.999;
    });
    if (!known) {
      kept.push_back(candidate);
    }
  }
  return kept;
}

struct Problem {
  const char* model;
  const char* device;
  std::int64_t devices;
  std::int64_t global_batch;
  double memory_limit;
};

class PrunedSearch : public testing::TestWithParam<Problem> {};

TEST_P(PrunedSearch, FindsWhatTryingAllFinds) {
  const Problem& problem = GetParam();
  const Workload workload{.seq = 4096, .global_batch = problem.global_batch};
  const CostContext context = search_context(problem.model, problem.device, problem.devices, workload);
  const SearchSpace space = small_space(context.model().experts > 0);
  const std::vector<Candidate> all = by_hand(context, space, problem.devices, problem.memory_limit);
  const std::vector<Candidate> best = distinct(all);
  for (const bool prune : {false, true}) {
    for (const int threads : {1, 3}) {
      const SearchResult result = search(context, space,
                                         {.devices = problem.devices,
                                          .top = 5,
                                          .memory_limit = problem.memory_limit,
                                          .threads = threads,
                                          .prune = prune,
                                          .progress = {}});
      ASSERT_EQ(result.best.size(), std::min<std::size_t>(5, best.size()));
      for (std::size_t i = 0; i < result.best.size(); ++i) {
        EXPECT_DOUBLE_EQ(result.best[i].cost.seconds.total, best[i].cost.seconds.total) << i;
      }
      if (!prune) {
        EXPECT_EQ(result.pruned, 0);
        EXPECT_EQ(result.costed - result.too_large, std::ssize(all));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Small, PrunedSearch,
                         testing::Values(Problem{"llama3-8b", "h100", 16, 64, 80e9},
                                         Problem{"llama3-70b", "h100", 64, 64, 60e9},
                                         Problem{"qwen3-30b-a3b", "h800", 16, 64, 80e9},
                                         Problem{"qwen3-30b-a3b", "ascend-910b", 64, 256, 64e9},
                                         Problem{"deepseek-v2", "h100", 64, 128, 80e9},
                                         Problem{"gpt-oss-120b", "b200", 32, 64, 180e9},
                                         Problem{"llama3-405b", "a100", 8, 8, 80e9}));

// Experts inside a node: dispatchers that tell nodes apart have nothing to tell.
TEST(Search, NamesDispatchersThatChangeNothing) {
  const Workload workload{.seq = 4096, .global_batch = 1024};
  const CostContext context = search_context("qwen3-30b-a3b", "h100", 64, workload);
  const SearchResult result =
      search(context, default_space(context, 64), {.devices = 64, .top = 10, .threads = 2, .progress = {}});
  ASSERT_EQ(result.best.size(), 10U);
  std::set<std::string> shown;
  std::size_t named = 0;
  for (const Candidate& candidate : result.best) {
    Strategy plain = candidate.strategy;
    plain.dispatcher = schedule::Dispatcher::alltoall;
    named += candidate.alternatives.size();
    EXPECT_EQ(std::ranges::count(candidate.alternatives, candidate.strategy.dispatcher), 0);
    EXPECT_TRUE(shown.insert(to_string(plain)).second || candidate.alternatives.empty());
  }
  EXPECT_GE(named, 10U);
  const std::string report = describe(result, simulate_finalists(context, result.best, 0, 1), 80e9);
  EXPECT_NE(report.find("(the same: dispatcher="), std::string::npos);
}

TEST(Search, PrunesAndCounts) {
  const Workload workload{.seq = 4096, .global_batch = 512};
  const CostContext context = search_context("qwen3-30b-a3b", "h100", 64, workload);
  SearchOptions options{.devices = 64, .top = 3, .progress = {}};
  const SearchSpace space = small_space(true);
  const SearchResult pruned = search(context, space, options);
  options.prune = false;
  const SearchResult whole = search(context, space, options);
  EXPECT_GT(pruned.pruned, 0);
  EXPECT_EQ(pruned.pruned + pruned.costed, whole.costed);
  EXPECT_EQ(pruned.illegal, whole.illegal);
  EXPECT_LT(pruned.costed, whole.costed);
}

TEST(Search, CostsEveryStrategyOnce) {
  const Workload workload{.seq = 4096, .global_batch = 64};
  const CostContext context = search_context("llama3-8b", "h100", 16, workload);
  const SearchResult result =
      search(context, small_space(false),
             {.devices = 16, .top = 1000, .memory_limit = 1e15, .prune = false, .progress = {}});
  std::set<std::string> seen;
  for (const Candidate& candidate : result.best) {
    EXPECT_TRUE(seen.insert(to_string(candidate.strategy)).second) << to_string(candidate.strategy);
  }
  EXPECT_EQ(std::ssize(seen), std::min<std::int64_t>(1000, result.costed));
}

TEST(Search, SaysWhenNothingFits) {
  const Workload workload{.seq = 4096, .global_batch = 8};
  const CostContext context = search_context("llama3-405b", "a100", 8, workload);
  const SearchResult result = search(context, small_space(false), {.devices = 8, .progress = {}});
  EXPECT_TRUE(result.best.empty());
  EXPECT_GT(result.too_large, 0);
  EXPECT_NE(describe(result, {}, 80e9).find("nothing fits: the smallest needs"), std::string::npos);
}

TEST(PlanReport, ExplainsAStrategy) {
  const Workload workload{.seq = 4096, .global_batch = 512};
  const CostContext context = search_context("qwen3-30b-a3b", "h100", 64, workload);
  const std::string text =
      explain_strategy(context, parse_strategy("pp=2,ep=8", 64), default_space(context, 64), 80e9);
  for (const char* part : {"matmul", "expert-parallel comm", "optimizer", "what if", "dispatcher="}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  }
}

}  // namespace
}  // namespace expedite::plan
