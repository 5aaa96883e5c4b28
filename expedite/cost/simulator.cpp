#include "expedite/cost/simulator.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "expedite/base/error.h"
#include "expedite/cost/exposure.h"
#include "expedite/cost/shared_cores.h"
#include "expedite/cost/shared_links.h"
#include "expedite/cost/task_graph.h"

namespace expedite::cost {
namespace {

using schedule::BufferId;
using schedule::Stream;
using schedule::Task;

std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

/// What each rank holds now, and held at most.
class Memory {
 public:
  Memory(std::vector<RankTimes>& ranks, bool keep) : ranks_(ranks), keep_(keep), held_(ranks.size()) {}

  void acquire(const TaskGraph& graph, Node node, double now) {
    change(graph, node, graph.task(node).acquires, 1, now);
    const std::size_t rank = graph.rank_of(node);
    RankTimes& times = ranks_[rank];
    for (std::size_t i = 0; i < kMemoryCategories; ++i) {
      times.peak_bytes[i] = std::max(times.peak_bytes[i], held_[rank].of[i]);
    }
    times.total_peak_bytes = std::max(times.total_peak_bytes, held_[rank].total);
  }
  void release(const TaskGraph& graph, Node node, double now) {
    change(graph, node, graph.task(node).releases, -1, now);
  }

 private:
  struct Held {
    std::array<std::int64_t, kMemoryCategories> of{};
    std::int64_t total = 0;
  };

  /// Of changes at one time only what they come to is kept.
  static void keep(std::vector<MemoryPoint>& points, const MemoryPoint& point) {
    if (!points.empty() && points.back().time == point.time && points.back().category == point.category) {
      points.back() = point;
    } else {
      points.push_back(point);
    }
  }

  void change(const TaskGraph& graph, Node node, const std::vector<BufferId>& buffers, int sign, double now) {
    const std::size_t rank = graph.rank_of(node);
    for (const BufferId id : buffers) {
      const schedule::LogicalBuffer& buffer = graph.schedule_of(node).buffers[at(id)];
      std::int64_t& held = held_[rank].of[static_cast<std::size_t>(buffer.category)];
      held += sign * buffer.expected_bytes;
      held_[rank].total += sign * buffer.expected_bytes;
      if (keep_) {
        keep(ranks_[rank].memory, {now, buffer.category, held});
      }
    }
  }

  std::vector<RankTimes>& ranks_;
  bool keep_;
  std::vector<Held> held_;
};

class Simulator {
 public:
  Simulator(std::span<const RankClass> ranks, const TaskCosts& costs, const SimulationOptions& options)
      : options_(options),
        graph_(ranks),
        runs_(at(graph_.nodes())),
        missing_(at(graph_.nodes())),
        absent_(graph_.meetings().size()),
        links_(ranks.size(), options.contention) {
    if (options.cores) {
      require(options.cores->node_of.size() == ranks.size(), "the nodes of {} ranks for {}",
              options.cores->node_of.size(), ranks.size());
      cores_.emplace(options.cores->node_of, options.cores->sharing);
    }
    result_.tasks = graph_.nodes();
    for (const RankClass& rank : ranks) {
      RankTimes times;
      times.rank = rank.schedule->rank;
      times.multiplicity = rank.multiplicity;
      result_.ranks.push_back(std::move(times));
    }
    for (std::size_t i = 0; i < absent_.size(); ++i) {
      absent_[i] = static_cast<std::int32_t>(graph_.meetings()[i].size());
    }
    ask(costs);
  }

  Simulation run() {
    Memory memory(result_.ranks, options_.memory);
    std::vector<std::pair<Node, Node>> ready;  // and what it waited for last
    for (Node node = 0; node < graph_.nodes(); ++node) {
      missing_[at(node)] = graph_.waits_for(node);
      if (missing_[at(node)] == 0) {
        ready.emplace_back(node, -1);
      }
    }
    double now = 0.0;
    Node ended = 0;
    // All that ends at one time ends before anything begins at that time.
    while (true) {
      for (const auto& [node, cause] : ready) {
        runs_[at(node)].cause = cause;
        memory.acquire(graph_, node, now);
        reach(node, now);
      }
      ready.clear();
      share_cores(now);
      if (!next_time(now)) {
        break;
      }
      for (const Node node : arrived_) {
        arrive(node, now);
      }
      for (const Node node : ending_) {
        runs_[at(node)].end = now;
        memory.release(graph_, node, now);
        ++ended;
        for (const Node follower : graph_.followers(node)) {
          if (--missing_[at(follower)] == 0) {
            ready.emplace_back(follower, node);
          }
        }
      }
    }
    if (ended < graph_.nodes()) {
      fail("{}", stuck());
    }
    result_.seconds = now;
    account(graph_, runs_, options_.events, result_);
    return std::move(result_);
  }

 private:
  void ask(const TaskCosts& costs) {
    for (Node node = 0; node < graph_.nodes(); ++node) {
      const TaskCost cost = costs(graph_.schedule_of(node), graph_.task(node));
      if (!(cost.seconds >= 0.0) || !std::isfinite(cost.seconds) || cost.link >= kSharedLinks) {
        fail(
            "rank {}: '{}' is said to take {} seconds and to use link {}: seconds are 0 or more, links below "
            "{}",
            graph_.schedule_of(node).rank, schedule::label(graph_.task(node)), cost.seconds, cost.link,
            kSharedLinks);
      }
      runs_[at(node)].cost = cost;
    }
  }

  /// A task's turn has come. Communication begins with the last of its meeting.
  void reach(Node node, double now) {
    const std::int32_t meeting = graph_.meeting_of(node);
    runs_[at(node)].reached = now;
    if (meeting < 0) {
      runs_[at(node)].begin = now;
      if (cores_ && graph_.task(node).stream == Stream::compute) {
        cores_->begin(graph_, node, runs_[at(node)].cost.seconds, now);
      } else {
        ends_.push({now + runs_[at(node)].cost.seconds, ++events_, node, -1});
      }
      return;
    }
    if (cores_) {
      arriving_.push_back(node);  // whether its rank computes is known when all has begun that begins now
    } else {
      arrive(node, now);
    }
  }

  /// The rank is at the communication; the last of its meeting begins it.
  void arrive(Node node, double now) {
    const std::int32_t meeting = graph_.meeting_of(node);
    if (--absent_[at(meeting)] > 0) {
      return;
    }
    double seconds = 0.0;
    for (const Node member : graph_.meeting(node)) {
      runs_[at(member)].begin = now;
      seconds = std::max(seconds, runs_[at(member)].cost.seconds);
    }
    if (!cores_) {
      links_.begin(graph_, runs_, meeting, graph_.meeting(node), seconds, now, foresee_communication());
      return;
    }
    for (const Node member : graph_.meeting(node)) {
      links_.begin(graph_, runs_, member, std::span(&member, 1), runs_[at(member)].cost.seconds, now,
                   foresee_communication());
      use_cores(member, 1);
      under_way_.push_back(member);
    }
  }

  /// `which` is a meeting; with shared cores, a member of one.
  SharedLinks::Schedule foresee_communication() {
    return [this](std::int32_t which, double end) { ends_.push({end, ++events_, -1, which}); };
  }

  /// What communication takes of its rank's cores.
  void use_cores(Node node, int sign) {
    const TaskCost& cost = runs_[at(node)].cost;
    cores_->communicate(graph_.rank_of(node), cost.link, cost.compute_share, sign);
  }

  void share_cores(double now) {
    if (!cores_) {
      return;
    }
    for (const Node node : arriving_) {
      const double delay =
          cores_->computes(graph_.rank_of(node)) ? runs_[at(node)].cost.busy_start_seconds : 0.0;
      ends_.push({now + delay, ++events_, node, kArrives});
    }
    arriving_.clear();
    cores_->share_anew(now, [&](Node node, double end) { ends_.push({end, ++events_, node, -1}); });
    for (const Node node : under_way_) {
      const std::span<const Node> members = graph_.meeting(node);
      const auto computing = static_cast<double>(std::ranges::count_if(
          members, [&](Node member) { return cores_->computes(graph_.rank_of(member)); }));
      const TaskCost& cost = runs_[at(node)].cost;
      const double part = computing / static_cast<double>(members.size());
      const double seconds = cost.seconds + part * (std::max(cost.busy_seconds, cost.seconds) - cost.seconds);
      links_.set_factor(node, seconds > 0.0 ? cost.seconds / seconds : 1.0, now, foresee_communication());
    }
  }

  /// Moves on to when the next tasks end, which are then in `ending_`.
  bool next_time(double& now) {
    ending_.clear();
    arrived_.clear();
    while (!ends_.empty() && ((ending_.empty() && arrived_.empty()) || ends_.top().time == now)) {
      const End end = ends_.top();
      ends_.pop();
      if (end.meeting == kArrives) {
        arrived_.push_back(end.node);
      } else if (end.meeting < 0) {
        if (cores_ && graph_.task(end.node).stream == Stream::compute) {
          if (!cores_->ends(graph_, end.node, end.time)) {
            continue;  // its share changed since
          }
          cores_->end(graph_, end.node);
        }
        ending_.push_back(end.node);
      } else if (links_.ends(end.meeting, end.time)) {
        links_.end(end.meeting, end.time, foresee_communication());
        if (cores_) {
          use_cores(end.meeting, -1);
          std::erase(under_way_, end.meeting);
          ending_.push_back(end.meeting);
        } else {
          const auto& members = graph_.meetings()[at(end.meeting)];
          ending_.insert(ending_.end(), members.begin(), members.end());
        }
      } else {
        continue;  // it got another share of its link since
      }
      now = end.time;
    }
    return !ending_.empty() || !arrived_.empty();
  }

  [[nodiscard]] std::string stuck() const {
    for (Node node = 0; node < graph_.nodes(); ++node) {
      if (runs_[at(node)].end < 0.0 && missing_[at(node)] == 0) {
        return fmt::format("rank {}: '{}' waits for ever for another rank: schedule::verify says why",
                           graph_.schedule_of(node).rank, schedule::label(graph_.task(node)));
      }
    }
    return "the tasks to simulate wait for each other in a circle: schedule::verify names them";
  }

  static constexpr std::int32_t kArrives = -2;  // End::meeting of a rank's arrival at `node`

  struct End {
    double time;
    std::int64_t number;  // earlier events first
    Node node;
    std::int32_t meeting;  // with shared cores, the member of one that ends

    bool operator>(const End& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  SimulationOptions options_;
  TaskGraph graph_;
  std::vector<TaskRun> runs_;
  std::vector<std::int32_t> missing_;  // by node: what it still waits for
  std::vector<std::int32_t> absent_;   // by meeting: members that have not reached it
  SharedLinks links_;
  std::optional<SharedCores> cores_;
  std::vector<Node> arriving_;   // with shared cores: communication whose turn has come
  std::vector<Node> arrived_;    // and has been begun by its rank
  std::vector<Node> under_way_;  // with shared cores: communication
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::int64_t events_ = 0;
  std::vector<Node> ending_;
  Simulation result_;
};

}  // namespace

Simulation simulate(std::span<const RankClass> ranks, const TaskCosts& costs,
                    const SimulationOptions& options) {
  return Simulator(ranks, costs, options).run();
}

std::vector<tracing::RankTrace> traces_of(const Simulation& simulation) {
  std::vector<tracing::RankTrace> traces;
  for (const RankTimes& rank : simulation.ranks) {
    tracing::RankTrace trace = {.rank = rank.rank, .events = rank.events};
    for (const MemoryPoint& point : rank.memory) {
      trace.memory.push_back({std::llround(point.time * 1e9), point.category, point.bytes});
    }
    traces.push_back(std::move(trace));
  }
  return traces;
}

}  // namespace expedite::cost
