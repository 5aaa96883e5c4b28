// Experts that a checkpoint holds in one tensor per layer (gpt_oss), each with tensors of its own.
#pragma once

#include "expedite/architecture/model_config.h"
#include "tests/reference/parameters.h"

namespace expedite::reference {

/// Parameters, or gradients, in which every expert has a gate, up and down under its own names, each
/// [outputs, inputs] with a bias, instead of the tensors of all; unchanged where a family has no such
/// tensors.
[[nodiscard]] Parameters separate_experts(const ModelConfig& config, Parameters parameters);

/// The other way round.
[[nodiscard]] Parameters fuse_experts(const ModelConfig& config, Parameters parameters);

}  // namespace expedite::reference
