// Which tokenizer a run uses.
#pragma once

#include <string>

#include "expedite/train/config.h"

namespace expedite::train {

/// `data.tokenizer`; where that is empty the one of `model.path`, and without one there, bytes. Loaded
/// weights know no bytes, but those of a checkpoint of a run on bytes: without a tokenizer for others Error
/// says what to give. The result is for text::make_tokenizer and text::tokenizer_files.
[[nodiscard]] std::string tokenizer_choice(const TrainConfig& config);

/// The folder of `model.path` where that holds a tokenizer, else nothing.
[[nodiscard]] std::string model_tokenizer(const TrainConfig& config);

}  // namespace expedite::train
