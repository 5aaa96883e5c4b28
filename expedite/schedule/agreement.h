// Whether the communication of ranks that have built their schedules each for itself will meet, told from a
// few bytes of each: what matching.h finds with all schedules at hand.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "expedite/schedule/schedule.h"

namespace expedite::schedule {

/// A queue of communication that this rank takes part in (Channel), and all its tasks in their order.
struct ChannelDigest {
  std::uint64_t channel = 0;  // hash of group, members, stream; of messages also sender and receiver
  std::uint64_t tasks = 0;    // hash of what must be the same on all of them, in order
  std::int64_t ranks = 0;     // that must have the same

  bool operator==(const ChannelDigest&) const = default;
};
/// Ids must be in range (verify_alone).
[[nodiscard]] std::vector<ChannelDigest> digest(const Schedule& schedule);

/// The first channel, by rank, of which not all its ranks have the same tasks; nothing when all agree.
[[nodiscard]] std::optional<std::uint64_t> find_disagreement(
    std::span<const std::vector<ChannelDigest>> by_rank);

/// One rank's tasks of a channel, as text to send to the others; empty where it has none.
[[nodiscard]] std::string channel_text(const Schedule& schedule, std::uint64_t channel);
/// From every rank's channel_text: a sentence that names two ranks and the first task in which they differ.
[[nodiscard]] std::string describe_disagreement(std::span<const std::string> by_rank);

}  // namespace expedite::schedule
