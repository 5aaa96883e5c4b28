// Specifications of pipelines for tests: small jobs with all their ranks.
#pragma once

#include <vector>

#include "expedite/schedule/pipeline_step.h"
#include "tests/schedule/step_specs.h"

namespace expedite::schedule::testing {

/// Ranks of a stage are neighbours: rank r is number r % per_stage of stage r / per_stage. The ranks of a
/// stage are one expert-parallel group of `ep` after the other, on nodes of `per_node` ranks.
struct PipelineJob {
  PipelineShape shape;
  std::vector<bool> sparse;
  int per_stage = 1;
  int ep = 1;
  int per_node = 1;

  [[nodiscard]] int ranks() const { return shape.stages * per_stage; }
};

inline PipelineSpec pipeline_spec_of(const PipelineJob& job, int rank) {
  PipelineSpec spec;
  spec.shape = job.shape;
  spec.stage = rank / job.per_stage;
  const int number = rank % job.per_stage;
  const int first = rank - number;
  spec.step = spec_of(rank, job.ranks(), 1, job.sparse);
  auto& groups = spec.step.groups;
  groups[kWorldGroup].ranks.clear();
  groups[kExpertParallelGroup].ranks.clear();
  groups[kExpertDataParallelGroup].ranks.clear();
  groups[kNodeGroup].ranks.clear();
  groups.push_back({"dp", {}});
  groups.push_back({"pp", {}});
  // Of dualpipe, stages s and p - 1 - s hold the same weights.
  const int mirror =
      job.shape.kind == PipelineKind::dualpipe ? job.shape.stages - 1 - spec.stage : spec.stage;
  for (int other = 0; other < job.ranks(); ++other) {
    const int stage = other / job.per_stage;
    const int other_number = other % job.per_stage;
    groups[kWorldGroup].ranks.push_back(other);
    if (stage == spec.stage && other_number / job.ep == number / job.ep) {
      groups[kExpertParallelGroup].ranks.push_back(other);
      if ((other - first) / job.per_node == number / job.per_node) {
        groups[kNodeGroup].ranks.push_back(other);
      }
    }
    if (stage == spec.stage || stage == mirror) {
      groups[kDataParallelGroup].ranks.push_back(other);
      if (other_number % job.ep == number % job.ep) {
        groups[kExpertDataParallelGroup].ranks.push_back(other);
      }
    }
    if (other_number == number) {
      groups[kPipelineGroup].ranks.push_back(other);
    }
  }
  spec.step.expert_parallel_stream = job.ep > job.per_node ? Stream::inter : Stream::intra;
  return spec;
}

}  // namespace expedite::schedule::testing
