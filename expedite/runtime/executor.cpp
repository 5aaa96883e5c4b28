#include "expedite/runtime/executor.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "expedite/base/error.h"
#include "expedite/base/urgent_thread.h"
#include "expedite/comm/clock.h"
#include "expedite/runtime/step.h"

namespace expedite::runtime {

using schedule::Stream;
using schedule::Task;
using schedule::TaskId;

namespace {

using Lock = std::unique_lock<std::mutex>;

constexpr std::array kCommunicationStreams = {Stream::intra, Stream::inter, Stream::reduce};
constexpr std::chrono::microseconds kShortestSleep{20};

/// The text of the exception being handled.
std::string current_error() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

/// A stream that nobody serves would be waited for without end.
void require_served(const schedule::Schedule& schedule) {
  const auto unserved =
      std::ranges::find_if(schedule.tasks, [](const Task& task) { return !serves(task.stream); });
  if (unserved == schedule.tasks.end()) {
    return;
  }
  std::string served;
  for (int i = 0; i < schedule::kStreams; ++i) {
    if (const auto stream = static_cast<Stream>(i); serves(stream)) {
      served += fmt::format("{}{}", served.empty() ? "" : ", ", name_of(stream));
    }
  }
  fail(
      "task {} '{}' is on stream {}, which the executor does not serve (it serves {}): such a schedule can "
      "be "
      "simulated, not run",
      unserved - schedule.tasks.begin(), label(*unserved), name_of(unserved->stream), served);
}

}  // namespace

class Executor::Impl {
 public:
  Impl(MemoryPool& pool, ExecutorOptions options) : pool_(pool), options_(std::move(options)) {
    if (!options_.clock) {
      options_.clock = comm::steady_nanoseconds;
    }
  }

  ~Impl() {
    {
      const Lock lock(mutex_);
      quit_ = true;
    }
    worker_changed_.notify_all();
    for (std::thread& worker : workers_) {
      worker.join();
    }
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void run(const schedule::Schedule& schedule, TaskRunner& runner) {
    require_served(schedule);
    const std::int64_t begin = now();
    Run current(schedule, runner, begin);
    if (options_.trace != nullptr) {
      options_.trace->begin_step(begin);
    }
    start_workers(current);
    {
      std::optional<UrgentThread> urgent;
      if (options_.urgent_communication) {
        urgent.emplace();
      }
      serve_communication(current);
    }
    finish_workers(current);
    if (options_.trace != nullptr) {
      options_.trace->end_step(now());
    }
    if (current.stopped) {
      throw Error(current.error);
    }
  }

  [[nodiscard]] Status status() const {
    const Lock lock(mutex_);
    if (run_ != nullptr) {
      return run_->step.status(now());
    }
    Status idle;
    for (std::size_t stream = 0; stream < idle.size(); ++stream) {
      idle[stream].stream = static_cast<Stream>(stream);
    }
    return idle;
  }

 private:
  struct InFlight {
    TaskId task = -1;
    std::optional<BufferTable> buffers;  // what the runner may have kept a reference to
    std::unique_ptr<PendingCommunication> pending;
    std::int64_t stall_at = 0;
  };

  struct Run {
    Run(const schedule::Schedule& schedule, TaskRunner& task_runner, std::int64_t begin)
        : runner(task_runner), buffers(schedule.buffers.size()), step(schedule, begin), next_poll(begin) {}

    TaskRunner& runner;
    BufferStore buffers;
    Step step;                          // guarded by mutex_
    bool stopped = false;               // guarded by mutex_
    std::string error;                  // guarded by mutex_; why it stopped
    int busy_workers = 0;               // guarded by mutex_; that have not yet left this run
    std::uint64_t changes = 0;          // guarded by mutex_; tasks done, or a stop
    std::array<InFlight, 3> in_flight;  // communication thread only
    std::int64_t next_poll;             // communication thread only
  };

  [[nodiscard]] std::int64_t now() const { return options_.clock(); }

  // ---- Both sides

  void stop(Run& run, std::string error) {
    {
      const Lock lock(mutex_);
      if (!run.stopped) {
        run.stopped = true;
        run.error = std::move(error);
      }
      ++run.changes;
    }
    worker_changed_.notify_all();
    communication_changed_.notify_all();
  }

  void acquire(Run& run, const Task& task) {
    for (const schedule::BufferId id : task.acquires) {
      const schedule::LogicalBuffer& buffer = run.step.schedule().buffers[static_cast<std::size_t>(id)];
      MemoryPool& pool = buffer.shared && options_.shared_pool != nullptr ? *options_.shared_pool : pool_;
      run.buffers.acquire(id, pool.allocate(run.runner.bytes(buffer), buffer.category), task);
    }
  }

  void complete(Run& run, const Task& task, std::int64_t bytes = 0, const RowTraffic& rows = {}) {
    for (const schedule::BufferId id : task.releases) {
      run.buffers.release(id, task);
    }
    {
      const Lock lock(mutex_);
      const tracing::TraceEvent event = run.step.end(task.stream, now(), bytes, rows);
      ++run.changes;
      if (options_.trace != nullptr) {
        options_.trace->record(event);  // under the lock, so that events stand in the order they ended
      }
    }
    worker_changed_.notify_all();
    communication_changed_.notify_all();
  }

  // ---- Compute and prefetch threads

  void start_workers(Run& run) {
    Lock lock(mutex_);
    const auto start_worker = [this](Stream stream) {
      workers_.emplace_back([this, stream, seen = generation_] { work(stream, seen); });
    };
    if (workers_.empty()) {
      start_worker(Stream::compute);
    }
    if (workers_.size() == 1 && run.step.has_tasks(Stream::prefetch)) {
      start_worker(Stream::prefetch);
    }
    run_ = &run;
    run.busy_workers = static_cast<int>(workers_.size());
    ++generation_;
    lock.unlock();
    worker_changed_.notify_all();
  }

  void finish_workers(Run& run) {
    Lock lock(mutex_);
    while (run.busy_workers > 0) {
      communication_changed_.wait_for(lock, options_.poll_interval);
      lock.unlock();
      poll(run);
      lock.lock();
    }
    run_ = nullptr;
  }

  /// A worker's life; `seen` runs began before it.
  void work(Stream stream, std::uint64_t seen) {
    Lock lock(mutex_);
    bool set_up = stream != Stream::compute || !options_.compute_thread_setup;
    for (;;) {
      worker_changed_.wait(lock, [&] { return quit_ || generation_ != seen; });
      if (quit_) {
        return;
      }
      seen = generation_;
      Run& run = *run_;
      if (!std::exchange(set_up, true)) {
        lock.unlock();
        set_up = set_up_compute_thread(run);
        lock.lock();
      }
      while (start_next(run, stream, lock)) {
        const Task& task = run.step.task(current_[static_cast<std::size_t>(stream)]);
        lock.unlock();
        run_task(run, task);
        lock.lock();
      }
      --run.busy_workers;
      communication_changed_.notify_all();  // under the lock: `run` may end with the last one's leaving
    }
  }

  bool set_up_compute_thread(Run& run) {
    try {
      options_.compute_thread_setup();
      return true;
    } catch (...) {
      stop(run, "setting up the compute thread: " + current_error());
      return false;
    }
  }

  /// Waits for the stream's next task and starts it; false at the end of the stream or of the run.
  bool start_next(Run& run, Stream stream, Lock& lock) {
    worker_changed_.wait(
        lock, [&] { return run.stopped || run.step.head(stream) < 0 || run.step.head_ready(stream); });
    if (run.stopped || run.step.head(stream) < 0) {
      return false;
    }
    current_[static_cast<std::size_t>(stream)] = run.step.head(stream);
    run.step.begin(stream, now());
    return true;
  }

  void run_task(Run& run, const Task& task) {
    try {
      acquire(run, task);
      BufferTable window = run.buffers.window(task);
      run.runner.run(task, window);
      complete(run, task);
    } catch (...) {
      stop(run, label(task) + ": " + current_error());
    }
  }

  // ---- Communication thread: the one that called run()

  void serve_communication(Run& run) {
    std::chrono::microseconds sleep = kShortestSleep;
    for (;;) {
      Lock lock(mutex_);
      const std::uint64_t changes = run.changes;
      if (run.stopped || run.step.finished()) {
        break;
      }
      lock.unlock();
      poll(run);
      if (advance_streams(run)) {
        sleep = kShortestSleep;
        continue;
      }
      check_stalls(run);
      lock.lock();
      if (run.step.stuck()) {
        const std::string report = run.step.describe_waits();
        lock.unlock();
        stop(run, report);
        break;
      }
      wait_for_change(run, lock, changes, sleep);
    }
    for (InFlight& abandoned : run.in_flight) {
      abandoned.pending.reset();  // before the buffers go
    }
  }

  void wait_for_change(Run& run, Lock& lock, std::uint64_t changes, std::chrono::microseconds& sleep) {
    const auto changed = [&] { return run.changes != changes; };
    const bool pending =
        std::any_of(run.in_flight.begin(), run.in_flight.end(),
                    [](const InFlight& communication) { return communication.pending != nullptr; });
    if (!pending && !options_.poll) {
      communication_changed_.wait(lock, changed);
    } else if (!pending) {
      communication_changed_.wait_for(lock, options_.poll_interval, changed);
    } else {
      // While compute waits, its core is free and what it waits for is on the way: look more often.
      const auto longest =
          run.step.running(Stream::compute) ? options_.longest_sleep : options_.longest_sleep / 4;
      communication_changed_.wait_for(lock, std::min(sleep, longest), changed);
      sleep = std::min(sleep * 3 / 2, options_.longest_sleep);
    }
  }

  /// Finishes and starts what can be; true if anything moved.
  bool advance_streams(Run& run) {
    bool moved = false;
    for (std::size_t i = 0; i < run.in_flight.size(); ++i) {
      InFlight& slot = run.in_flight[i];
      if (slot.pending == nullptr) {
        moved = start_communication(run, slot, kCommunicationStreams[i]) || moved;
      } else {
        moved = test_communication(run, slot) || moved;
      }
    }
    return moved;
  }

  bool start_communication(Run& run, InFlight& slot, Stream stream) {
    {
      const Lock lock(mutex_);
      if (run.stopped || !run.step.head_ready(stream)) {
        return false;
      }
      slot.task = run.step.head(stream);
      run.step.begin(stream, now());
      slot.stall_at = run.step.begun(stream) + stall_limit();
    }
    const Task& task = run.step.task(slot.task);
    try {
      acquire(run, task);
      slot.buffers.emplace(run.buffers.window(task));
      slot.pending = run.runner.start(task, *slot.buffers);
      if (slot.pending == nullptr) {
        complete(run, task);
      }
    } catch (...) {
      stop(run, label(task) + ": " + current_error());
    }
    return true;
  }

  bool test_communication(Run& run, InFlight& slot) {
    const Task& task = run.step.task(slot.task);
    try {
      if (!slot.pending->test()) {
        return false;
      }
      const std::int64_t bytes = slot.pending->bytes();
      const RowTraffic rows = slot.pending->rows();
      slot.pending.reset();
      complete(run, task, bytes, rows);
    } catch (...) {
      stop(run, label(task) + ": " + current_error());
    }
    return true;
  }

  [[nodiscard]] std::int64_t stall_limit() const {
    return static_cast<std::int64_t>(options_.stall_limit_seconds * 1e9);
  }

  void check_stalls(Run& run) {
    if (stall_limit() <= 0) {
      return;
    }
    for (InFlight& slot : run.in_flight) {
      if (slot.pending == nullptr || now() < slot.stall_at) {
        continue;
      }
      slot.stall_at = now() + stall_limit();
      const std::string report = to_string(status());
      try {
        if (options_.on_stall) {
          options_.on_stall(report);
        } else {
          fail("no end after {} s:\n{}", options_.stall_limit_seconds, report);
        }
      } catch (...) {
        stop(run, label(run.step.task(slot.task)) + ": " + current_error());
      }
    }
  }

  void poll(Run& run) {
    if (!options_.poll || now() < run.next_poll) {
      return;
    }
    run.next_poll = now() + std::chrono::nanoseconds(options_.poll_interval).count();
    try {
      options_.poll();
    } catch (...) {
      stop(run, current_error());
    }
  }

  MemoryPool& pool_;
  ExecutorOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable worker_changed_;
  std::condition_variable communication_changed_;
  Run* run_ = nullptr;               // guarded by mutex_
  std::uint64_t generation_ = 0;     // guarded by mutex_; runs so far
  bool quit_ = false;                // guarded by mutex_
  std::array<TaskId, 2> current_{};  // by worker: its running task; each touched by its own thread
  std::vector<std::thread> workers_;
};

Executor::Executor(MemoryPool& pool, ExecutorOptions options)
    : impl_(std::make_unique<Impl>(pool, std::move(options))) {}
Executor::~Executor() = default;

void Executor::run(const schedule::Schedule& schedule, TaskRunner& runner) {
  impl_->run(schedule, runner);
}

Status Executor::status() const {
  return impl_->status();
}

}  // namespace expedite::runtime
