#include "expedite/plan/named_parts.h"

namespace expedite::plan {

NamedParts parts_of(const StepSeconds& seconds) {
  NamedParts parts;
  for (std::size_t i = 0; i < kCauses; ++i) {
    parts.emplace_back(kCauseNames[i], seconds.work.by_cause[i]);
  }
  parts.emplace_back("pipeline bubble", seconds.bubble);
  parts.emplace_back("pipeline sends", seconds.sends);
  parts.emplace_back("gradient comm", seconds.gradients);
  parts.emplace_back("optimizer", seconds.optimizer);
  parts.emplace_back("step overhead", seconds.overhead);
  return parts;
}

NamedParts parts_of(const Memory& memory) {
  return {{"weights", memory.weights},
          {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},
          {"activations", memory.activations},
          {"expert activations", memory.expert_activations},
          {"communication", memory.communication},
          {"logits", memory.logits},
          {"allocator", memory.allocator}};
}

}  // namespace expedite::plan
