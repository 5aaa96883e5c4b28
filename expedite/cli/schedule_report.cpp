#include "expedite/cli/schedule_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "expedite/schedule/listing.h"
#include "expedite/schedule/verify.h"

namespace expedite::cli {

ScheduleCheck check_schedules(std::span<const schedule::Schedule> schedules, const std::string& who) {
  constexpr std::size_t kShown = 10;
  const std::vector<std::string> faults = schedule::verify(schedules);
  if (!faults.empty()) {
    std::string text = fmt::format("unsound: {} fault{} in the schedules of {}\n", faults.size(),
                                   faults.size() == 1 ? "" : "s", who);
    for (std::size_t i = 0; i < std::min(faults.size(), kShown); ++i) {
      text += fmt::format("  {}\n", faults[i]);
    }
    if (faults.size() > kShown) {
      text += fmt::format("  and {} more\n", faults.size() - kShown);
    }
    return {false, text};
  }
  std::size_t tasks = 0;
  std::size_t buffers = 0;
  std::ptrdiff_t communicating = 0;
  for (const schedule::Schedule& each : schedules) {
    tasks += each.tasks.size();
    buffers += each.buffers.size();
    communicating += std::ranges::count_if(
        each.tasks, [](const schedule::Task& task) { return task.communication.has_value(); });
  }
  return {true,
          fmt::format("sound: {}, {} tasks, {} of them communication, {} buffers: no deadlock, no mismatched "
                      "communication, no misused buffer\n",
                      who, tasks, communicating, buffers)};
}

std::string schedules_json(std::span<const schedule::Schedule* const> schedules) {
  nlohmann::json json = {{"schedules", nlohmann::json::array()}};
  for (const schedule::Schedule* each : schedules) {
    json["schedules"].push_back(schedule::to_json(*each));
  }
  return json.dump(1) + "\n";
}

}  // namespace expedite::cli
