// Random schedules that are sound by construction: events are drawn one after the other as if the whole job
// ran them in that order, and every dependency points to an earlier event.
#pragma once

#include <vector>

#include "expedite/schedule/schedule.h"

namespace expedite::schedule::testing {

struct RandomScheduleOptions {
  int ranks = 4;
  int events = 60;
  int live_buffers = 6;  // per rank, at most about as many at a time
};

/// One schedule per rank. Groups: "world"; with an even number of ranks also "pair", of ranks 2i and 2i + 1.
[[nodiscard]] std::vector<Schedule> random_schedules(unsigned seed,
                                                     const RandomScheduleOptions& options = {});

}  // namespace expedite::schedule::testing
