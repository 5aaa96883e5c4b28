// Where a run's model comes from: a Hugging Face folder, or the configuration itself.
#pragma once

#include "expedite/architecture/model_config.h"
#include "expedite/train/config.h"

namespace expedite::train {

/// The model of a run: `model.path`'s config.json or the fields under `model.config`, with what the `moe`
/// section adds to it. A vocabulary that is not given is the tokenizer's; one too small for it is an Error,
/// and so is a sequence longer than the model has positions.
[[nodiscard]] ModelConfig model_of(const TrainConfig& config, std::int64_t tokenizer_vocab);

}  // namespace expedite::train
