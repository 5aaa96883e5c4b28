#include "expedite/runtime/agreement.h"

#include <cstring>
#include <string>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/comm/collectives.h"
#include "expedite/schedule/agreement.h"

namespace expedite::runtime {

void require_agreement(const comm::Communicator& world, const schedule::Schedule& schedule) {
  if (world.size() == 1) {
    return;
  }
  using schedule::ChannelDigest;
  const std::vector<ChannelDigest> mine = schedule::digest(schedule);
  std::string bytes(mine.size() * sizeof(ChannelDigest), '\0');
  std::memcpy(bytes.data(), mine.data(), bytes.size());
  std::vector<std::vector<ChannelDigest>> by_rank;
  for (const std::string& each : comm::all_gather_text(world, bytes)) {
    std::memcpy(by_rank.emplace_back(each.size() / sizeof(ChannelDigest)).data(), each.data(), each.size());
  }
  if (const auto channel = schedule::find_disagreement(by_rank)) {
    const std::vector<std::string> tasks =
        comm::all_gather_text(world, schedule::channel_text(schedule, *channel));
    fail(
        "the ranks' schedules do not meet: {}. All ranks must run the same program with the same "
        "configuration",
        schedule::describe_disagreement(tasks));
  }
}

}  // namespace expedite::runtime
