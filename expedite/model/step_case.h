// A training step of a job that need not run: everything that it depends on, and its schedules.
#pragma once

#include <cstdint>
#include <vector>

#include "expedite/architecture/model_config.h"
#include "expedite/comm/grid_layout.h"
#include "expedite/model/balance.h"
#include "expedite/model/step_spec.h"
#include "expedite/schedule/builders.h"
#include "expedite/schedule/schedule.h"

namespace expedite::model {

/// A training step as a job would run it.
struct StepCase {
  ModelConfig config;
  DType dtype = DType::bf16;
  schedule::EpPlan plan;
  const schedule::Builder* builder = &schedule::step_builders().front();
  comm::Placement placement;
  StepShape shape;
  std::int64_t sequence_length = 0;  // of which a micro-batch holds several
  BalanceOptions balance;
  // [sparse layers][E] how often tokens chose each expert; empty: evenly.
  std::vector<std::vector<double>> expert_loads;

  [[nodiscard]] int ranks() const { return placement.layout.world_size(); }
};

/// Of every rank.
[[nodiscard]] std::vector<schedule::Schedule> build_schedules(const StepCase& step);

}  // namespace expedite::model
