#include "expedite/plan/schedule_check.h"

#include <algorithm>
#include <set>

namespace expedite::plan {

std::vector<schedule::Schedule> as_small_job(const StepSchedules& schedules) {
  int per_stage = 0;
  for (const RankKind& kind : schedules.kinds) {
    per_stage += kind.stage == 0 ? kind.multiplicity : 0;
  }
  std::vector<schedule::Schedule> job = schedules.schedules;
  for (std::size_t i = 0; i < job.size(); ++i) {
    schedule::Schedule& mine = job[i];
    mine.rank = static_cast<int>(i);
    for (schedule::Group& group : mine.groups) {
      std::set<int> stages;
      for (const int rank : group.ranks) {
        stages.insert(rank / per_stage);
      }
      group.ranks.clear();
      for (std::size_t kind = 0; kind < schedules.kinds.size(); ++kind) {
        if (stages.contains(schedules.kinds[kind].stage)) {
          group.ranks.push_back(static_cast<int>(kind));
        }
      }
    }
    for (schedule::Task& task : mine.tasks) {
      if (task.communication && task.communication->peer >= 0) {
        const int stage = task.communication->peer / per_stage;
        const auto peer = std::ranges::find_if(schedules.kinds, [&](const RankKind& kind) {
          return kind.stage == stage && kind.busiest == schedules.kinds[i].busiest;
        });
        task.communication->peer = static_cast<int>(peer - schedules.kinds.begin());
      }
    }
  }
  return job;
}

}  // namespace expedite::plan
