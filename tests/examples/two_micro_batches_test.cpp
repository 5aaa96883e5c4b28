// The example's builder: sound on every layout, the same tasks as a step in order, and each exchange of a
// pair over the other micro-batch's compute.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "examples/two_micro_batches/builder.h"
#include "expedite/schedule/verify.h"
#include "tests/error_of.h"
#include "tests/schedule/step_specs.h"

namespace expedite::examples {
namespace {

using schedule::Op;
using schedule::Schedule;
using schedule::Task;

std::multiset<std::string> labels(const Schedule& schedule) {
  std::multiset<std::string> all;
  for (const Task& task : schedule.tasks) {
    all.insert(label(task) + " " + std::string(name_of(task.stream)));
  }
  return all;
}

TEST(TwoMicroBatches, AreSoundAndDoTheTasksOfAStepInOrder) {
  for (const auto& [world, ep] : std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {2, 2}, {4, 2}, {4, 4}}) {
    for (const int layers : {0, 1, 3}) {
      for (const int micro_batches : {1, 2, 3, 4}) {
        for (const schedule::Dispatcher dispatcher : schedule::kDispatchers) {
          for (const int chunks : {1, 3}) {
            std::vector<Schedule> all;
            std::multiset<std::string> expected;
            for (int rank = 0; rank < world; ++rank) {
              schedule::StepSpec spec = schedule::spec_of(
                  rank, world, ep, std::vector<bool>(static_cast<std::size_t>(layers), true),
                  world == 4 ? std::vector<int>{2, 2} : std::vector<int>{world});
              spec.micro_batches = micro_batches;
              spec.ep_plan.dispatcher = dispatcher;
              spec.ep_plan.chunking.chunks = chunks;
              spec.shared_experts = layers % 2 != 0;
              all.push_back(build(kTwoMicroBatches, spec));
              expected = labels(build(schedule::step_builders().front(), spec));
            }
            ASSERT_EQ(schedule::verify(all), std::vector<std::string>{})
                << "world " << world << " ep " << ep << " layers " << layers << " micro-batches "
                << micro_batches;
            EXPECT_EQ(labels(all.back()), expected);
          }
        }
      }
    }
  }
}

TEST(TwoMicroBatches, ComputeWhileTheOthersRowsTravel) {
  schedule::StepSpec spec = schedule::spec_of(0, 4, 4, {true, true});
  spec.micro_batches = 2;
  const Schedule schedule = build_two_micro_batches(spec);
  int exchanges = 0;
  for (std::size_t id = 0; id < schedule.tasks.size(); ++id) {
    const Task& exchange = schedule.tasks[id];
    if (exchange.op != Op::dispatch && exchange.op != Op::combine) {
      continue;
    }
    ++exchanges;
    const auto behind = schedule.tasks.begin() + static_cast<std::ptrdiff_t>(id) + 1;
    const auto waits = std::find_if(behind, schedule.tasks.end(), [&](const Task& task) {
      return std::ranges::find(task.after, static_cast<schedule::TaskId>(id)) != task.after.end();
    });
    EXPECT_TRUE(std::any_of(behind, waits, [&](const Task& task) {
      return task.stream == schedule::Stream::compute && task.micro_batch != exchange.micro_batch;
    })) << label(exchange);
  }
  EXPECT_EQ(exchanges, 16);
}

TEST(TwoMicroBatches, SayWhatTheyCannotBuild) {
  schedule::StepSpec spec = schedule::spec_of(0, 2, 2, {true, false});
  EXPECT_NE(error_of([&] { (void)build(kTwoMicroBatches, spec); }).find("layer 1 has no experts"),
            std::string::npos);
  spec.sparse = {true};
  spec.batch_aux_loss = true;
  EXPECT_NE(error_of([&] { (void)build(kTwoMicroBatches, spec); }).find("auxiliary loss"), std::string::npos);
}

}  // namespace
}  // namespace expedite::examples
