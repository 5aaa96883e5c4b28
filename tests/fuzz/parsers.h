// What fuzzers and the test of their seeds do with bytes: read them as one of the planner's inputs and use
// what was read, or get an Error.
#pragma once

#include <string_view>

#include "expedite/architecture/model_config.h"
#include "expedite/architecture/parameter_count.h"
#include "expedite/base/error.h"
#include "expedite/base/strict_json.h"
#include "expedite/cost/cluster.h"
#include "expedite/plan/machine.h"
#include "expedite/plan/run_prediction.h"
#include "expedite/plan/step_cost.h"

namespace expedite::fuzz {

/// A table of measured runs, each of which is predicted.
inline void use_csv(std::string_view text) {
  for (const plan::Run& run : plan::parse_runs(text, "fuzz")) {
    plan::RunPrediction prediction(run);
    (void)prediction.predict(plan::builtin_calibration().of(prediction.device(), run.software->name));
  }
}

/// A model's config.json.
inline void use_json(std::string_view text) {
  constexpr int kDepth = 32;
  const ModelConfig model = architecture::parse_model_config(parse_strict_json(text, "fuzz", kDepth), "fuzz");
  (void)architecture::total_parameters(model);
  (void)plan::model_flops(model, {.seq = 4096, .global_batch = 8});
}

/// A cluster's YAML.
inline void use_yaml(std::string_view text) {
  (void)plan::make_machine(cost::parse_cluster(text, "fuzz"), 8);
}

/// One of the above; an Error is an answer.
template <typename Use>
void read_or_refuse(const Use& use, std::string_view text) {
  try {
    use(text);
  } catch (const Error&) {
  }
}

}  // namespace expedite::fuzz
