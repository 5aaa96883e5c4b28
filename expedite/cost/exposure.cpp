#include "expedite/cost/exposure.h"

#include <algorithm>
#include <cmath>

namespace expedite::cost {
namespace {

using schedule::Stream;
using schedule::Task;

std::int64_t nanoseconds(double seconds) {
  return std::llround(seconds * 1e9);
}

class Accountant {
 public:
  Accountant(const TaskGraph& graph, const std::vector<TaskRun>& runs, bool events, Simulation& simulation)
      : graph_(graph),
        runs_(runs),
        events_(events),
        simulation_(simulation),
        state_(simulation.ranks.size()) {}

  void run() {
    for (Node node = 0; node < graph_.nodes(); ++node) {
      add(node);
    }
    for (std::size_t rank = 0; rank < state_.size(); ++rank) {
      finish(rank);
    }
  }

 private:
  struct State {
    double compute_end = 0.0;
    Node last = -1;  // of all its tasks the one that ended last
  };

  [[nodiscard]] const TaskRun& run_of(Node node) const { return runs_[static_cast<std::size_t>(node)]; }

  void add(Node node) {
    const Task& task = graph_.task(node);
    const TaskRun& run = run_of(node);
    const std::size_t rank = graph_.rank_of(node);
    RankTimes& times = simulation_.ranks[rank];
    State& state = state_[rank];
    times.by_op[static_cast<std::size_t>(task.op)] += run.end - run.begin;
    double wait = 0.0;
    double exposed = 0.0;
    if (task.stream == Stream::compute) {
      wait = run.begin - state.compute_end;
      exposed = expose(rank, state.compute_end, run.begin, run.cause);
      times.compute += run.end - run.begin;
      state.compute_end = run.end;
    }
    if (state.last < 0 || run.end > run_of(state.last).end) {
      state.last = node;
    }
    if (events_) {
      times.events.push_back({.op = task.op,
                              .pass = task.pass,
                              .stream = task.stream,
                              .layer = task.layer,
                              .micro_batch = task.micro_batch,
                              .chunk = task.chunk,
                              .chunks = task.chunks,
                              .begin = nanoseconds(run.begin),
                              .end = nanoseconds(run.end),
                              .wait = nanoseconds(wait),
                              .exposed = nanoseconds(exposed),
                              .bytes = run.cost.bytes});
    }
  }

  /// Of the idle time from begin to end, what communication that `cause` ended with was under way for.
  double expose(std::size_t rank, double begin, double end, Node cause) {
    RankTimes& times = simulation_.ranks[rank];
    const std::size_t first = times.exposures.size();
    double exposed = 0.0;
    while (end > begin && cause >= 0 && graph_.task(cause).stream != Stream::compute) {
      const TaskRun& run = run_of(cause);
      const double from = std::max(begin, run.begin);
      if (end > from) {
        const schedule::Op op = graph_.task(cause).op;
        exposed += end - from;
        times.exposed_by_op[static_cast<std::size_t>(op)] += end - from;
        times.exposures.push_back({op, from, end});
      }
      end = from;
      if (run.reached < run.begin) {
        break;  // it waited for another rank
      }
      cause = run.cause;
    }
    std::reverse(times.exposures.begin() + static_cast<std::ptrdiff_t>(first), times.exposures.end());
    times.exposed += exposed;
    return exposed;
  }

  /// After the last compute task.
  void finish(std::size_t rank) {
    RankTimes& times = simulation_.ranks[rank];
    const State& state = state_[rank];
    if (state.last >= 0) {
      expose(rank, state.compute_end, run_of(state.last).end, state.last);
    }
    times.bubble = simulation_.seconds - times.compute - times.exposed;
    std::stable_sort(times.events.begin(), times.events.end(),
                     [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }

  const TaskGraph& graph_;
  const std::vector<TaskRun>& runs_;
  bool events_;
  Simulation& simulation_;
  std::vector<State> state_;
};

}  // namespace

void account(const TaskGraph& graph, const std::vector<TaskRun>& runs, bool events, Simulation& simulation) {
  Accountant(graph, runs, events, simulation).run();
}

}  // namespace expedite::cost
