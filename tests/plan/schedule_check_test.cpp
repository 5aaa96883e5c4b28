// The schedules of strategies verified as a small job: sound ones are, and a fault in one of them is found.
#include "expedite/plan/schedule_check.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "expedite/plan/builtin_clusters.h"
#include "expedite/plan/strategy.h"
#include "expedite/schedule/verify.h"

namespace expedite::plan {
namespace {

CostContext context_of(const char* model, std::int64_t devices, const Workload& workload, double zipf) {
  const ModelConfig& transformer = *architecture::find_builtin_model(model);
  ExpertLoad load;
  if (zipf > 0.0) {
    load = {.weights = cost::zipf_weights(transformer.experts, zipf), .by_expert = false};
  }
  const DeviceFacts& facts = *find_device_facts("h100");
  return {transformer,
          make_machine(make_cluster(facts, devices), devices),
          workload,
          Precision::bf16,
          builtin_calibration().of(facts.kind, default_software().name),
          default_software(),
          load};
}

StepSchedules schedules_of(const CostContext& context, const char* text, std::int64_t devices,
                           const Workload& workload) {
  const Strategy strategy = parse_strategy(text, devices);
  EXPECT_FALSE(illegal(strategy, context.model(), workload, devices)) << text;
  return build_schedules(context, strategy, piece_times(context, strategy));
}

TEST(ScheduleCheck, FindsStrategiesSoundWithAndWithoutUnlikeRanks) {
  const Workload workload{.seq = 4096, .global_batch = 64};
  for (const double zipf : {0.0, 1.0}) {
    const CostContext context = context_of("qwen3-30b-a3b", 32, workload, zipf);
    for (const char* text : {"ep=8", "tp=2,ep=4", "tp=2,pp=2,ep=8,zero=1", "pp=4,ep=8",
                             "pp=4,vpp=2,ep=4,pipeline=adaptive", "pp=4,ep=8,pipeline=zb-h1",
                             "pp=2,ep=8,pipeline=dualpipe", "ep=8,chunks=4,zero=3", "pp=2,tp=2,ep=4,etp=2"}) {
      const std::vector<schedule::Schedule> job = as_small_job(schedules_of(context, text, 32, workload));
      EXPECT_EQ(schedule::verify(job), std::vector<std::string>{}) << text << " zipf " << zipf;
    }
  }
}

TEST(ScheduleCheck, FindsAFaultOfOneKindOfRank) {
  const Workload workload{.seq = 4096, .global_batch = 64};
  const CostContext context = context_of("qwen3-30b-a3b", 32, workload, 1.0);
  const StepSchedules sound = schedules_of(context, "pp=4,ep=8", 32, workload);
  ASSERT_EQ(sound.kinds.size(), 8U);
  for (const schedule::Op op : {schedule::Op::dispatch, schedule::Op::receive, schedule::Op::reduce_dense}) {
    for (std::size_t kind = 2; kind < 4; ++kind) {
      StepSchedules broken = sound;
      auto& tasks = broken.schedules[kind].tasks;
      const auto task =
          std::ranges::find_if(tasks, [&](const schedule::Task& each) { return each.op == op; });
      ASSERT_NE(task, tasks.end());
      task->micro_batch += 1;
      EXPECT_NE(schedule::verify(as_small_job(broken)), std::vector<std::string>{}) << name_of(op);
    }
  }
}

}  // namespace
}  // namespace expedite::plan
