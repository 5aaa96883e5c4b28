// What `expedite schedule --check` says of sound and of unsound schedules.
#include "expedite/cli/schedule_report.h"

#include <gtest/gtest.h>

namespace expedite::cli {
namespace {

using schedule::Communication;
using schedule::Op;
using schedule::Schedule;

std::vector<Schedule> two_ranks() {
  Schedule schedule;
  schedule.groups = {{"world", {0, 1}}};
  schedule.buffers.resize(1);
  schedule.tasks = {
      {.acquires = {0}},
      {.op = Op::statistics, .stream = schedule::Stream::intra, .communication = Communication{}},
      {.op = Op::loss, .after = {1}, .releases = {0}}};
  std::vector<Schedule> both(2, schedule);
  both[1].rank = 1;
  return both;
}

TEST(ScheduleReport, CountsWhereSound) {
  const ScheduleCheck check = check_schedules(two_ranks(), "2 ranks");
  EXPECT_TRUE(check.sound);
  EXPECT_EQ(check.text,
            "sound: 2 ranks, 6 tasks, 2 of them communication, 2 buffers: no deadlock, no mismatched "
            "communication, "
            "no misused buffer\n");
}

TEST(ScheduleReport, NamesWhatIsWrong) {
  std::vector<Schedule> schedules = two_ranks();
  schedules[1].tasks[1].layer = 4;
  schedules[1].tasks[2].releases.clear();
  const ScheduleCheck check = check_schedules(schedules, "2 ranks");
  EXPECT_FALSE(check.sound);
  EXPECT_EQ(check.text.find("unsound: 2 faults in the schedules of 2 ranks\n"), 0U) << check.text;
  EXPECT_NE(check.text.find("'L4 statistics forward'"), std::string::npos) << check.text;
  EXPECT_NE(check.text.find("released 0 times"), std::string::npos) << check.text;
}

}  // namespace
}  // namespace expedite::cli
