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
  spec.experts_per_token = 2;
  spec.bytes = bytes_of_rows(64, 32);
  return spec;
}

std::function<std::int64_t(Role, std::int64_t)> bytes_of_rows(std::int64_t hidden, std::int64_t ffn) {
  return [hidden, ffn](Role role, std::int64_t count) {
    switch (role) {
      case Role::gate_up:
      case Role::grad_gate_up:
        return 2 * count * 2 * ffn;
      case Role::activated:
        return 2 * count * ffn;
      default:
        return 2 * count * hidden;
    }
  };
}

}  // namespace expedite::schedule
