#include "expedite/model/step_case.h"

namespace expedite::model {

std::vector<schedule::Schedule> build_schedules(const StepCase& step) {
  std::vector<schedule::Schedule> schedules;
  for (int rank = 0; rank < step.ranks(); ++rank) {
    schedules.push_back(schedule::build(
        *step.builder, step_spec(step.config, step.dtype, step.plan, step.placement, rank, step.shape)));
  }
  return schedules;
}

}  // namespace expedite::model
