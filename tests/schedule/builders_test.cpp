// Builders by name: each is sound on every layout, and the overlapped one runs a forward under a backward.
#include "expedite/schedule/builders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "expedite/schedule/verify.h"
#include "tests/error_of.h"
#include "tests/schedule/step_specs.h"

namespace expedite::schedule {
namespace {

using Key = std::tuple<Op, Pass, int, int, int>;

std::map<Key, int> counts(const Schedule& schedule) {
  std::map<Key, int> result;
  for (const Task& task : schedule.tasks) {
    // Reductions follow a layer's last micro-batch, and bear it or none.
    const int micro_batch = task.pass == Pass::update ? -1 : task.micro_batch;
    ++result[{task.op, task.pass, task.layer, micro_batch, task.chunk}];
  }
  return result;
}

TEST(Builders, HaveNamesOfTheirOwn) {
  for (const auto builders : {step_builders(), layer_builders()}) {
    std::set<std::string> seen;
    for (const std::string& name : names_of(builders)) {
      EXPECT_TRUE(seen.insert(name).second) << name;
      ASSERT_NE(find_builder(builders, name), nullptr);
      EXPECT_EQ(find_builder(builders, name)->name, name);
    }
    EXPECT_EQ(find_builder(builders, "no such"), nullptr);
  }
}

TEST(Builders, AreSoundOnEveryLayoutAndDoTheSameTasks) {
  for (const auto& [world, ep] : std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {2, 2}, {4, 2}, {4, 4}}) {
    for (const std::vector<bool>& sparse :
         std::vector<std::vector<bool>>{{}, {false}, {true}, {true, true}, {false, true, false}}) {
      for (const int micro_batches : {1, 2, 3, 5}) {
        for (const Dispatcher dispatcher : kDispatchers) {
          for (const int variant : {0, 1, 2, 3}) {
            std::map<Key, int> expected;
            for (const Builder& builder : step_builders()) {
              std::vector<Schedule> schedules;
              for (int rank = 0; rank < world; ++rank) {
                StepSpec spec = spec_of(rank, world, ep, sparse,
                                        world == 4 ? std::vector<int>{2, 2} : std::vector<int>{world});
                spec.micro_batches = micro_batches;
                spec.ep_plan.dispatcher = dispatcher;
                spec.batch_aux_loss = variant == 1;
                spec.update = variant != 2;
                spec.ep_plan.recompute = variant == 3 ? MoeRecompute::full : MoeRecompute::none;
                spec.shared_experts = variant == 0;
                schedules.push_back(build(builder, spec));
              }
              ASSERT_EQ(verify(schedules), std::vector<std::string>{})
                  << builder.name << " world " << world << " ep " << ep << " layers " << sparse.size()
                  << " variant " << variant;
              if (expected.empty()) {
                expected = counts(schedules.back());
              }
              EXPECT_EQ(counts(schedules.back()), expected) << builder.name << " variant " << variant;
            }
          }
        }
      }
    }
  }
}

TEST(Builders, OverlapAForwardWithTheBackwardBefore) {
  StepSpec spec = spec_of(0, 4, 4, {true, true});
  spec.micro_batches = 3;
  const Schedule schedule = build(*find_builder(step_builders(), "overlapped_1f1b"), spec);
  // Compute tasks between the start of an exchange and the task that waits for it: of the other micro-batch.
  int covered = 0;
  for (std::size_t id = 0; id < schedule.tasks.size(); ++id) {
    const Task& exchange = schedule.tasks[id];
    if (exchange.op != Op::dispatch && exchange.op != Op::combine) {
      continue;
    }
    bool other = false;
    for (std::size_t next = id + 1; next < schedule.tasks.size(); ++next) {
      const Task& task = schedule.tasks[next];
      if (std::ranges::find(task.after, static_cast<TaskId>(id)) != task.after.end()) {
        break;
      }
      other = other || (task.stream == Stream::compute && task.micro_batch != exchange.micro_batch);
    }
    covered += other ? 1 : 0;
  }
  // Two pairs, each of two layers with two exchanges forward and two backward.
  EXPECT_EQ(covered, 16);
}

TEST(Builders, SayWhatTheyCannotBuild) {
  const Builder& overlapped = *find_builder(step_builders(), "overlapped_1f1b");
  StepSpec spec = spec_of(0, 2, 2, {true});
  spec.ep_plan.chunking.chunks = 4;
  EXPECT_EQ(
      error_of([&] { (void)build(overlapped, spec); }),
      "schedule overlapped_1f1b takes layers whole, whose exchanges other micro-batches hide: take one chunk "
      "(moe_num_chunks: 1), not 4");
  spec.ep_plan.chunking.chunks = 1;
  spec.training = false;
  EXPECT_NE(error_of([&] { (void)build(overlapped, spec); }).find("training steps"), std::string::npos);
}

}  // namespace
}  // namespace expedite::schedule
