// Every order does every forward and backward once and in an order that can run; illegal shapes are
// explained.
#include "expedite/schedule/pipeline_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "expedite/base/error.h"
#include "tests/schedule/pipeline_shapes.h"

namespace expedite::schedule {
namespace {

TEST(PipelineOrder, DoesEverythingOnce) {
  for (const PipelineShape& shape : testing::legal_shapes(8, 4, 40)) {
    std::map<std::pair<int, int>, int> forwards;  // by part and micro-batch
    std::map<std::pair<int, int>, int> input_grads;
    std::map<std::pair<int, int>, int> weight_grads;
    for (int stage = 0; stage < shape.stages; ++stage) {
      for (const Action& action : stage_order(shape, stage)) {
        const std::pair key{part_at(shape, stage, action.virtual_stage), action.micro_batch};
        forwards[key] += action.phase == Phase::forward ? 1 : 0;
        input_grads[key] += action.phase == Phase::backward || action.phase == Phase::input_grad ? 1 : 0;
        weight_grads[key] += action.phase == Phase::backward || action.phase == Phase::weight_grad ? 1 : 0;
      }
    }
    const auto once = [](const auto& entry) { return entry.second == 1; };
    for (const auto* counts : {&forwards, &input_grads, &weight_grads}) {
      ASSERT_EQ(static_cast<int>(counts->size()), parts_of(shape) * shape.micro_batches)
          << testing::name_of(shape);
      ASSERT_TRUE(std::ranges::all_of(*counts, once)) << testing::name_of(shape);
    }
  }
}

TEST(PipelineOrder, DoesForwardBeforeInputGradBeforeWeightGrad) {
  for (const PipelineShape& shape : testing::legal_shapes(6, 3, 24)) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      std::set<std::pair<int, int>> forward;
      std::set<std::pair<int, int>> input_grad;
      for (const Action& action : stage_order(shape, stage)) {
        const std::pair key{action.virtual_stage, action.micro_batch};
        if (action.phase == Phase::forward) {
          forward.insert(key);
        } else if (action.phase == Phase::weight_grad) {
          ASSERT_TRUE(input_grad.contains(key)) << testing::name_of(shape);
        } else {
          ASSERT_TRUE(forward.contains(key)) << testing::name_of(shape);
          input_grad.insert(key);
        }
      }
    }
  }
}

TEST(PipelineOrder, PairsAForwardWithTheBackwardAfterItOfAnotherMicroBatchOrPart) {
  for (const PipelineShape& shape : testing::legal_shapes(6, 3, 24)) {
    int pairs = 0;
    for (int stage = 0; stage < shape.stages; ++stage) {
      const std::vector<Action> order = stage_order(shape, stage);
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (order[i].paired) {
          ASSERT_LT(i + 1, order.size());
          EXPECT_EQ(order[i].phase, Phase::forward);
          EXPECT_EQ(order[i + 1].phase, Phase::backward);
          EXPECT_TRUE(order[i + 1].paired);
          EXPECT_NE((std::pair(order[i].virtual_stage, order[i].micro_batch)),
                    (std::pair(order[i + 1].virtual_stage, order[i + 1].micro_batch)));
          ++pairs;
          ++i;
        }
      }
    }
    const bool overlaps = shape.kind == PipelineKind::dualpipe || shape.kind == PipelineKind::adaptive_pipe;
    if (!overlaps) {
      EXPECT_EQ(pairs, 0);
    } else if (shape.micro_batches >= 2 * shape.stages + 2) {
      EXPECT_GT(pairs, 0) << testing::name_of(shape);
    }
  }
}

// 4 stages, 2 virtual stages, 8 micro-batches: the first tasks of Megatron-LM's figure 4 (SC 2021).
TEST(PipelineOrder, IsMegatronsInterleavedOrder) {
  const PipelineShape shape{PipelineKind::interleaved, 4, 2, 8};
  const std::vector<Action> last = stage_order(shape, 3);
  const std::vector<Action> wanted = {
      {Phase::forward, 0, 0}, {Phase::forward, 0, 1},  {Phase::forward, 0, 2}, {Phase::forward, 0, 3},
      {Phase::forward, 1, 0}, {Phase::backward, 1, 0}, {Phase::forward, 1, 1}, {Phase::backward, 1, 1},
      {Phase::forward, 1, 2}, {Phase::backward, 1, 2}, {Phase::forward, 1, 3}, {Phase::backward, 1, 3},
      {Phase::forward, 0, 4}, {Phase::backward, 0, 0}, {Phase::forward, 0, 5}, {Phase::backward, 0, 1}};
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), last.begin()));
  const std::vector<Action> first = stage_order(shape, 0);
  const auto backward = std::ranges::find(first, Phase::backward, &Action::phase);
  EXPECT_EQ(backward - first.begin(), 2 * 3 + 4 + 1);
}

// What a stage has under way at most, in micro-batches times virtual stages, until its weight gradients.
int most_under_way(const PipelineShape& shape, int stage) {
  int now = 0;
  int most = 0;
  for (const Action& action : stage_order(shape, stage)) {
    now += action.phase == Phase::forward ? 1 : 0;
    most = std::max(most, now);
    now -= action.phase == Phase::backward || action.phase == Phase::weight_grad ? 1 : 0;
  }
  return most;
}

TEST(PipelineOrder, KeepsAsManyMicroBatchesAsPublished) {
  for (const int p : {2, 4, 8}) {
    for (int stage = 0; stage < p; ++stage) {
      EXPECT_EQ(most_under_way({PipelineKind::one_f_one_b, p, 1, 32}, stage), p - stage);
      EXPECT_LE(most_under_way({PipelineKind::zero_bubble_h1, p, 1, 32}, stage), p);
      EXPECT_EQ(most_under_way({PipelineKind::dualpipe, p, 1, 32}, stage), p + 1);
      const int interleaved = most_under_way({PipelineKind::interleaved, p, 2, 32}, stage);
      EXPECT_EQ(interleaved, 2 * (p - 1 - stage) + p + 1);
      EXPECT_EQ(most_under_way({PipelineKind::adaptive_pipe, p, 2, 32}, stage), interleaved + 1);
    }
  }
}

TEST(PipelineOrder, SaysWhatWouldBeLegal) {
  const auto expect = [](const PipelineShape& shape, const std::string& part) {
    EXPECT_NE(problem_of(shape).find(part), std::string::npos) << problem_of(shape);
    EXPECT_THROW((void)stage_order(shape, 0), Error);
  };
  expect({PipelineKind::one_f_one_b, 0, 1, 1}, "at least 1");
  expect({PipelineKind::one_f_one_b, 4, 2, 8}, "take 1, not 2");
  expect({PipelineKind::zero_bubble_h1, 4, 2, 8}, "take 1, not 2");
  expect({PipelineKind::interleaved, 4, 1, 8}, "at least 2 virtual stages");
  expect({PipelineKind::interleaved, 4, 2, 6}, "take 4 or 8");
  expect({PipelineKind::interleaved, 4, 2, 3}, "take 4");
  expect({PipelineKind::adaptive_pipe, 4, 2, 6}, "take 4 or 8");
  expect({PipelineKind::dualpipe, 3, 1, 8}, "take 2 or 4");
  expect({PipelineKind::dualpipe, 4, 1, 6}, "at least 8");
  expect({PipelineKind::dualpipe, 4, 1, 9}, "even");
  EXPECT_THROW((void)stage_order({PipelineKind::one_f_one_b, 4, 1, 4}, 4), Error);
  EXPECT_THROW((void)stage_order({PipelineKind::one_f_one_b, 4, 1, 4}, -1), Error);
  EXPECT_EQ(problem_of({PipelineKind::adaptive_pipe, 4, 1, 3}), "");
}

TEST(PipelineOrder, HasNames) {
  for (const PipelineKind kind : kPipelineKinds) {
    EXPECT_EQ(parse_pipeline_kind(name_of(kind)), kind);
  }
  EXPECT_FALSE(parse_pipeline_kind("gpipe").has_value());
  EXPECT_EQ(pipeline_kind_names().size(), 5U);
}

}  // namespace
}  // namespace expedite::schedule
