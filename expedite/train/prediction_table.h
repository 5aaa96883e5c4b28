// A predicted step, alone or beside the run that it predicts, as a table and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "expedite/train/measured_run.h"
#include "expedite/train/prediction.h"

namespace expedite::train {

/// The prediction's tasks by class, as measured_run.h has them.
[[nodiscard]] ClassSeconds predicted_classes(const Prediction& prediction);

/// Of all ranks' time the part in which compute waits for communication, or for other ranks.
[[nodiscard]] double predicted_exposed(const Prediction& prediction);

/// Step time, tokens per second, exposed communication, and milliseconds by class of tasks, the largest
/// first; with a run also what it measured and how far off the prediction is.
[[nodiscard]] std::string prediction_table(const Prediction& prediction,
                                           const std::optional<MeasuredRun>& run);

/// The same: keys step_s, tokens_per_s, exposed_fraction, classes[] of op, pass and seconds; with a run in
/// each of them measured beside it.
[[nodiscard]] nlohmann::json prediction_json(const Prediction& prediction,
                                             const std::optional<MeasuredRun>& run);

}  // namespace expedite::train
