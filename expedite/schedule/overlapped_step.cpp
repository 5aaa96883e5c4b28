#include "expedite/schedule/overlapped_step.h"

#include "expedite/schedule/pipeline_step.h"

namespace expedite::schedule {

Schedule build_overlapped_step(const StepSpec& spec) {
  PipelineSpec pipeline{.shape = {.kind = PipelineKind::adaptive_pipe, .micro_batches = spec.micro_batches},
                        .step = spec};
  pipeline.step.groups.push_back({"dp", spec.groups[kWorldGroup].ranks});
  pipeline.step.groups.push_back({"pp", {spec.rank}});
  Schedule schedule = build_pipeline_step(pipeline);
  // All ranks hold the same dense weights, so that group is the world; the only stage sends no messages.
  for (Task& task : schedule.tasks) {
    if (task.communication && task.communication->group == kDataParallelGroup) {
      task.communication->group = kWorldGroup;
    }
  }
  schedule.groups = spec.groups;
  return schedule;
}

}  // namespace expedite::schedule
