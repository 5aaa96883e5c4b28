// Ranks make sure, before a step, that the schedules they have built meet.
#pragma once

#include "expedite/comm/communicator.h"
#include "expedite/schedule/schedule.h"

namespace expedite::runtime {

/// Collective over all ranks that the schedule's groups number; the schedule must be sound by itself
/// (schedule::verify_alone). One small all-gather where all agree. Throws Error, on all ranks the same, that
/// names two ranks and the first communication task in which they differ.
void require_agreement(const comm::Communicator& world, const schedule::Schedule& schedule);

}  // namespace expedite::runtime
