// Predicted steps, alone or beside the run that they predict, as a table and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "expedite/train/measured_run.h"

namespace expedite::train {

/// Step time, tokens per second (`tokens` in a step of all ranks), exposed communication, and milliseconds by
/// class of tasks, the largest first; with a run also what it measured and how far off the prediction is.
[[nodiscard]] std::string prediction_table(const StepTimes& predicted, std::int64_t tokens,
                                           const std::optional<StepTimes>& run);

/// The same: keys step_s, tokens_per_s, exposed_fraction, classes[] of op, pass and seconds; with a run
/// `measured`, of step_s, exposed_fraction and steps, and in each class measured_s.
[[nodiscard]] nlohmann::json prediction_json(const StepTimes& predicted, std::int64_t tokens,
                                             const std::optional<StepTimes>& run);

}  // namespace expedite::train
