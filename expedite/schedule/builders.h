// Builders of steps by name: what train, simulate, schedule and bench can be told to run.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/schedule/step_spec.h"

namespace expedite::schedule {

struct Builder {
  std::string_view name;
  std::string_view about;  // in a line
  Schedule (*build)(const StepSpec& spec);
  bool chunks = true;      // layers may be cut into chunks
  bool evaluation = true;  // steps without backward too
};

/// Of whole training steps; the first is the default, and builds evaluation steps too. One more is a file
/// with a pure function, and a line in builders.cpp.
[[nodiscard]] std::span<const Builder> step_builders();
/// Of one MoE layer alone, with its input and the gradient of its output from outside.
[[nodiscard]] std::span<const Builder> layer_builders();

/// Null: there is none of that name.
[[nodiscard]] const Builder* find_builder(std::span<const Builder> builders, std::string_view name);
/// For options and messages.
[[nodiscard]] std::vector<std::string> names_of(std::span<const Builder> builders);

/// Throws Error with the builder's name and what to change where it cannot build such a step.
[[nodiscard]] Schedule build(const Builder& builder, const StepSpec& spec);

}  // namespace expedite::schedule
