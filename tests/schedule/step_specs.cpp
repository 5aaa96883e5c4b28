#include "tests/schedule/step_specs.h"

namespace expedite::schedule {
namespace {

int node_of(int rank, const std::vector<int>& nodes) {
  int node = 0;
  for (int end = 0; node < static_cast<int>(nodes.size()); ++node) {
    end += nodes[static_cast<std::size_t>(node)];
    if (rank < end) {
      break;
    }
  }
  return node;
}

}  // namespace

StepSpec spec_of(int rank, int world, int ep, std::vector<bool> sparse, const std::vector<int>& nodes) {
  StepSpec spec;
  spec.rank = rank;
  spec.groups = {{"world", {}}, {"ep", {}}, {"expert_dp", {}}, {"ep_node", {}}};
  for (int r = 0; r < world; ++r) {
    spec.groups[kWorldGroup].ranks.push_back(r);
    if (r / ep == rank / ep) {
      spec.groups[kExpertParallelGroup].ranks.push_back(r);
      if (node_of(r, nodes) == node_of(rank, nodes)) {
        spec.groups[kNodeGroup].ranks.push_back(r);
      }
    }
    if (r % ep == rank % ep) {
      spec.groups[kExpertDataParallelGroup].ranks.push_back(r);
    }
  }
  spec.expert_parallel_stream = nodes.size() > 1 ? Stream::inter : Stream::intra;
  spec.sparse = std::move(sparse);
  spec.tokens = 128;
  spec.hidden_size = 64;
  spec.qkv_size = 96;
  spec.query_size = 64;
  spec.intermediate_size = 128;
  spec.moe_intermediate_size = 32;
  spec.experts = 8;
  spec.experts_per_token = 2;
  return spec;
}

}  // namespace expedite::schedule
