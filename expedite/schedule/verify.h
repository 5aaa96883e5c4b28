// Proves before anything runs that schedules cannot deadlock, mismatch their communication or misuse a
// buffer.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "expedite/schedule/schedule.h"

namespace expedite::schedule {

/// What is wrong with the schedules of all ranks of a job (schedules[i].rank == i), each a sentence naming
/// rank, task and buffer or group. Empty: they are sound. Checked:
/// - every id is in range; communication tasks sit on communication streams and only they do; members are
///   members;
/// - collectives of a group on a stream are the same, in the same order, on all its members. A group may be
/// used
///   on several streams: each has an order of its own, so whoever runs it needs a communicator for each;
/// - sends and receives between two ranks match in number and order;
/// - dependencies, stream order and communication together have no cycle over all ranks (a collective, or a
///   send, ends only when every member has started it);
/// - a buffer is acquired once, before (by dependency or stream order, not by luck) everything that uses it,
///   and released once, after everything that uses it.
/// Takes about a second for 100,000 tasks.
[[nodiscard]] std::vector<std::string> verify(std::span<const Schedule> schedules);

/// The same of the schedule of one of `ranks` ranks by itself: all but how its communication meets the
/// others'.
[[nodiscard]] std::vector<std::string> verify_alone(const Schedule& schedule, int ranks);

/// Peak bytes by category and in total, walking the tasks of one rank in an order they could run in, from
/// LogicalBuffer::expected_bytes.
struct MemoryForecast {
  std::array<std::int64_t, kMemoryCategories> peak{};
  std::int64_t total_peak = 0;
};
[[nodiscard]] MemoryForecast forecast_memory(const Schedule& schedule);

}  // namespace expedite::schedule
