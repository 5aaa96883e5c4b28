#include "expedite/schedule/train_step.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "expedite/schedule/verify.h"
#include "tests/schedule/step_specs.h"

namespace expedite::schedule {
namespace {

int count(const Schedule& schedule, Op op, Pass pass) {
  return static_cast<int>(std::count_if(schedule.tasks.begin(), schedule.tasks.end(), [&](const Task& task) {
    return task.op == op && task.pass == pass;
  }));
}

TaskId find(const Schedule& schedule, Op op, Pass pass, int layer) {
  const auto task = std::find_if(schedule.tasks.begin(), schedule.tasks.end(), [&](const Task& t) {
    return t.op == op && t.pass == pass && t.layer == layer;
  });
  EXPECT_NE(task, schedule.tasks.end());
  return static_cast<TaskId>(task - schedule.tasks.begin());
}

TEST(TrainStep, IsSoundOnEveryLayout) {
  const std::vector<std::vector<bool>> models = {
      {true}, {false}, {true, true, true}, {false, true, false, true}, {true, false}, {}};
  for (const auto& [world, ep] :
       std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {2, 2}, {4, 2}, {4, 4}, {6, 3}}) {
    for (const std::vector<bool>& sparse : models) {
      for (const int micro_batches : {1, 3}) {
        for (const int variant : {0, 1, 2, 3}) {
          std::vector<Schedule> schedules;
          for (int rank = 0; rank < world; ++rank) {
            StepSpec spec = spec_of(rank, world, ep, sparse);
            spec.micro_batches = micro_batches;
            spec.training = variant != 0;
            spec.batch_aux_loss = variant == 2;
            spec.update = variant != 3;
            schedules.push_back(build_train_step(spec));
          }
          EXPECT_EQ(verify(schedules), std::vector<std::string>{})
              << "world " << world << " ep " << ep << " layers " << sparse.size() << " variant " << variant;
        }
      }
    }
  }
}

TEST(TrainStep, CommunicatesOnlyWithinGroupsOfSeveralRanks) {
  const Schedule alone = build_train_step(spec_of(0, 1, 1, {true, true}));
  for (const Task& task : alone.tasks) {
    EXPECT_FALSE(task.communication.has_value()) << label(task);
  }
  const Schedule data_parallel = build_train_step(spec_of(0, 2, 1, {true, true}));
  EXPECT_EQ(count(data_parallel, Op::dispatch, Pass::forward), 0);
  EXPECT_EQ(count(data_parallel, Op::reduce_experts, Pass::update), 2);
  const Schedule expert_parallel = build_train_step(spec_of(0, 2, 2, {true, true}));
  EXPECT_EQ(count(expert_parallel, Op::dispatch, Pass::forward), 2);
  EXPECT_EQ(count(expert_parallel, Op::reduce_experts, Pass::update), 0);
}

TEST(TrainStep, ExchangesMetadataOncePerLayerAndMicroBatch) {
  StepSpec spec = spec_of(1, 4, 2, {true, false, true});
  spec.micro_batches = 3;
  const Schedule schedule = build_train_step(spec);
  EXPECT_EQ(count(schedule, Op::metadata, Pass::forward), 2 * 3);
  EXPECT_EQ(count(schedule, Op::metadata, Pass::input_grad), 0);
}

TEST(TrainStep, ReducesGradientsOnceHoweverManyMicroBatches) {
  StepSpec spec = spec_of(0, 4, 2, {true, false, true});
  spec.micro_batches = 3;
  const Schedule schedule = build_train_step(spec);
  EXPECT_EQ(count(schedule, Op::reduce_dense, Pass::update), 3 + 2);  // layers, embedding, head
  EXPECT_EQ(count(schedule, Op::reduce_experts, Pass::update), 2);
  EXPECT_EQ(count(schedule, Op::optimizer, Pass::update), 3 + 2);
}

// What hides the all-to-alls of backward: nothing that waits for them comes before the filler on the compute
// stream.
TEST(TrainStep, PutsWeightGradientsUnderTheAllToAlls) {
  const Schedule schedule = build_train_step(spec_of(0, 2, 2, {true, true}));
  const TaskId combine = find(schedule, Op::combine, Pass::input_grad, 0);
  const TaskId attention_above = find(schedule, Op::attention, Pass::weight_grad, 1);
  const TaskId experts = find(schedule, Op::experts, Pass::input_grad, 0);
  EXPECT_LT(combine, attention_above);
  EXPECT_LT(attention_above, experts);
  const TaskId dispatch = find(schedule, Op::dispatch, Pass::input_grad, 0);
  const TaskId expert_weights = find(schedule, Op::experts, Pass::weight_grad, 0);
  const TaskId permute = find(schedule, Op::permute, Pass::input_grad, 0);
  EXPECT_LT(dispatch, expert_weights);
  EXPECT_LT(expert_weights, permute);
  EXPECT_EQ(schedule.tasks[static_cast<std::size_t>(permute)].after, std::vector<TaskId>{dispatch});
}

TEST(TrainStep, EvaluationHoldsLessMemory) {
  StepSpec spec = spec_of(0, 2, 2, {true, false, true, true});
  const std::int64_t training = forecast_memory(build_train_step(spec)).total_peak;
  spec.training = false;
  const std::int64_t evaluation = forecast_memory(build_train_step(spec)).total_peak;
  EXPECT_GT(evaluation, 0);
  EXPECT_LT(evaluation, training / 2);
}

}  // namespace
}  // namespace expedite::schedule
