#include "tests/schedule/random_schedule.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

namespace expedite::schedule::testing {
namespace {

struct LiveBuffer {
  BufferId id = 0;
  std::vector<TaskId> touched_by;  // the first acquired it
};

class Generator {
 public:
  Generator(unsigned seed, const RandomScheduleOptions& options)
      : random_(seed), options_(options), live_(static_cast<std::size_t>(options.ranks)) {
    schedules_.resize(static_cast<std::size_t>(options.ranks));
    std::vector<int> world;
    for (int rank = 0; rank < options.ranks; ++rank) {
      world.push_back(rank);
    }
    for (int rank = 0; rank < options.ranks; ++rank) {
      Schedule& schedule = schedules_[static_cast<std::size_t>(rank)];
      schedule.rank = rank;
      schedule.groups.push_back({"world", world});
      if (options.ranks % 2 == 0) {
        schedule.groups.push_back({"pair", {rank / 2 * 2, rank / 2 * 2 + 1}});
      }
    }
  }

  std::vector<Schedule> run() {
    for (event_ = 0; event_ < options_.events; ++event_) {
      const int kind = below(10);
      if (kind < 5) {
        add_local();
      } else if (kind < 8 || options_.ranks < 2) {
        add_collective();
      } else {
        add_message();
      }
    }
    release_everything();
    return std::move(schedules_);
  }

 private:
  int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }
  bool chance(int percent) { return below(100) < percent; }

  TaskId add(int rank, Task task) {
    Schedule& schedule = schedules_[static_cast<std::size_t>(rank)];
    const auto id = static_cast<TaskId>(schedule.tasks.size());
    for (int i = below(3); i > 0 && id > 0; --i) {
      task.after.push_back(below(id));
    }
    touch_buffers(rank, id, task);
    schedule.tasks.push_back(std::move(task));
    return id;
  }

  void touch_buffers(int rank, TaskId id, Task& task) {
    Schedule& schedule = schedules_[static_cast<std::size_t>(rank)];
    auto& live = live_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < live.size();) {
      LiveBuffer& buffer = live[i];
      if (chance(25)) {  // release it: after everything that touched it
        task.after.insert(task.after.end(), buffer.touched_by.begin(), buffer.touched_by.end());
        task.releases.push_back(buffer.id);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      if (chance(40)) {
        task.after.push_back(buffer.touched_by.front());
        task.uses.push_back(buffer.id);
        buffer.touched_by.push_back(id);
      }
      ++i;
    }
    if (static_cast<int>(live.size()) < options_.live_buffers && chance(60)) {
      const auto buffer = static_cast<BufferId>(schedule.buffers.size());
      schedule.buffers.push_back(
          {.category = static_cast<MemoryCategory>(below(kMemoryCategories)), .expected_bytes = below(1000)});
      task.acquires.push_back(buffer);
      live.push_back({buffer, {id}});
    }
  }

  void add_local() {
    const int rank = below(options_.ranks);
    add(rank, {.op = static_cast<Op>(below(4)),
               .stream = chance(80) ? Stream::compute : Stream::prefetch,
               .layer = event_});
  }

  Stream communication_stream() {
    return std::array{Stream::intra, Stream::inter, Stream::reduce}[static_cast<std::size_t>(below(3))];
  }

  void add_collective() {
    const bool pair = options_.ranks % 2 == 0 && chance(50);
    const int first = pair ? below(options_.ranks / 2) * 2 : 0;
    const int last = pair ? first + 2 : options_.ranks;
    const Stream stream = communication_stream();
    const auto collective = static_cast<Collective>(below(3));
    for (int rank = first; rank < last; ++rank) {
      add(rank, {.op = Op::dispatch,
                 .stream = stream,
                 .layer = event_,
                 .communication = Communication{.collective = collective, .group = pair ? 1 : 0}});
    }
  }

  void add_message() {
    const int from = below(options_.ranks);
    const int to = (from + 1 + below(options_.ranks - 1)) % options_.ranks;
    const Stream stream = communication_stream();
    add(from, {.op = Op::combine,
               .stream = stream,
               .micro_batch = event_,
               .communication = Communication{.collective = Collective::send, .peer = to}});
    add(to, {.op = Op::combine,
             .stream = stream,
             .micro_batch = event_,
             .communication = Communication{.collective = Collective::receive, .peer = from}});
  }

  void release_everything() {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      Task last{.op = Op::optimizer, .layer = options_.events};
      for (LiveBuffer& buffer : std::exchange(live_[static_cast<std::size_t>(rank)], {})) {
        last.after.insert(last.after.end(), buffer.touched_by.begin(), buffer.touched_by.end());
        last.releases.push_back(buffer.id);
      }
      schedules_[static_cast<std::size_t>(rank)].tasks.push_back(std::move(last));
    }
  }

  std::mt19937 random_;
  RandomScheduleOptions options_;
  int event_ = 0;
  std::vector<std::vector<LiveBuffer>> live_;
  std::vector<Schedule> schedules_;
};

}  // namespace

std::vector<Schedule> random_schedules(unsigned seed, const RandomScheduleOptions& options) {
  return Generator(seed, options).run();
}

}  // namespace expedite::schedule::testing
