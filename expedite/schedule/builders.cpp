#include "expedite/schedule/builders.h"

#include <algorithm>
#include <array>

#include "expedite/base/error.h"
#include "expedite/schedule/overlapped_step.h"
#include "expedite/schedule/train_step.h"

namespace expedite::schedule {
namespace {

constexpr std::array kStepBuilders = {
    Builder{"train_step", "micro-batches one after the other; exchanges under the layer's own work",
            build_train_step},
    Builder{"overlapped_1f1b", "the forward of a micro-batch beside the backward of the one before it",
            build_overlapped_step, /*chunks=*/false, /*evaluation=*/false},
};

constexpr std::array kLayerBuilders = {
    Builder{"moe_layer", "the layer of train_step, forward and backward", build_moe_layer_step},
};

}  // namespace

std::span<const Builder> step_builders() {
  return kStepBuilders;
}

std::span<const Builder> layer_builders() {
  return kLayerBuilders;
}

const Builder* find_builder(std::span<const Builder> builders, std::string_view name) {
  const auto found = std::ranges::find(builders, name, &Builder::name);
  return found == builders.end() ? nullptr : &*found;
}

std::vector<std::string> names_of(std::span<const Builder> builders) {
  std::vector<std::string> names;
  for (const Builder& builder : builders) {
    names.emplace_back(builder.name);
  }
  return names;
}

Schedule build(const Builder& builder, const StepSpec& spec) {
  require(builder.chunks || spec.ep_plan.chunking.chunks == 1,
          "schedule {} takes layers whole, whose exchanges other micro-batches hide: take one chunk "
          "(moe_num_chunks: 1), not {}",
          builder.name, spec.ep_plan.chunking.chunks);
  require(builder.evaluation || spec.training,
          "schedule {} is of training steps: there is no backward in evaluation", builder.name);
  return builder.build(spec);
}

}  // namespace expedite::schedule
