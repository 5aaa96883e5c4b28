// Runs schedules without running anything: what starts when, what stays exposed and how much memory is held,
// if tasks take as long as a cost function says.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "expedite/cost/cluster.h"
#include "expedite/schedule/schedule.h"
#include "expedite/tracing/trace_json.h"

namespace expedite::cost {

/// Links of a rank that its communication shares.
inline constexpr int kSharedLinks = 2;  // inside the node, between nodes

struct TaskCost {
  double seconds = 0.0;    // of communication: from when all members have reached it, with its links alone
  std::int64_t bytes = 0;  // of communication: for the trace
  int link = -1;           // the shared link that communication uses, below kSharedLinks; -1: none
  double latency_seconds = 0.0;  // of `seconds`: in which it leaves its link to others
  double rest_seconds = 0.0;     // that it takes longer where its link has not rested for as long
  // Of communication with SimulationOptions::cores: what it takes while its members compute, and the part of
  // a member's cores that is left to compute meanwhile.
  double busy_seconds = 0.0;
  double compute_share = 1.0;
  double busy_start_seconds = 0.0;  // until a rank that computes begins it, from when its turn has come
};

/// What a task of a rank costs. A communication takes as long as its slowest member says.
using TaskCosts = std::function<TaskCost(const schedule::Schedule&, const schedule::Task&)>;

/// Ranks that do the same at the same time, of which one is simulated.
struct RankClass {
  const schedule::Schedule* schedule = nullptr;
  int multiplicity = 1;  // ranks in all
};

/// Where the simulated ranks compute, and what of each other's cores they may use.
struct Cores {
  std::vector<int> node_of;  // by simulated rank
  CoreSharing sharing = {};
};

struct SimulationOptions {
  bool contention = false;  // what is under way in one direction of a rank's link shares it (SharedLinks)
  bool events = false;      // keep what ran when
  bool memory = false;      // keep what was held when
  // Compute and communication share cores (SharedCores), and each member of a communication ends at a time of
  // its own.
  std::optional<Cores> cores = std::nullopt;
};

/// Compute had nothing to run from begin to end because a communication was not done.
struct Exposure {
  schedule::Op op = schedule::Op::dispatch;
  double begin = 0.0;
  double end = 0.0;
};

struct MemoryPoint {
  double time = 0.0;
  MemoryCategory category = MemoryCategory::activations;
  std::int64_t bytes = 0;  // held of this category from now on
};

/// Seconds. compute + exposed + bubble is the step's time, on every rank.
struct RankTimes {
  int rank = 0;
  int multiplicity = 1;
  double compute = 0.0;
  double exposed = 0.0;  // idle because of communication under way, from when all members had reached it
  double bubble = 0.0;   // idle for another reason: other ranks, or nothing left to do
  std::array<double, schedule::kOps> exposed_by_op{};
  std::array<double, schedule::kOps> by_op{};  // running or, of communication, under way
  std::vector<Exposure> exposures;             // in order of time

  // Of the buffers' expected bytes; what is there before the step is not counted.
  std::array<std::int64_t, kMemoryCategories> peak_bytes{};
  std::int64_t total_peak_bytes = 0;
  std::vector<MemoryPoint> memory;          // with SimulationOptions::memory
  std::vector<tracing::TraceEvent> events;  // with SimulationOptions::events, in order of their begin
};

struct Simulation {
  double seconds = 0.0;  // of the step
  std::int64_t tasks = 0;
  std::vector<RankTimes> ranks;  // as given
};

/// Streams are in-order queues; a task also waits for `Task::after`. A collective begins when all its
/// simulated members have reached it: members that are not simulated are taken to do what those do. A send
/// begins when its receive has been reached and the other way round, so peers must be simulated too. Buffers
/// are held from when a task's turn has come (a receive: before its message comes) to when the task that
/// releases them ends. The schedules should be ones that `verify` finds sound; Error when two have one rank,
/// when a peer is missing, when tasks wait for each other for ever, or when a cost is negative or not a
/// number.
[[nodiscard]] Simulation simulate(std::span<const RankClass> ranks, const TaskCosts& costs,
                                  const SimulationOptions& options = {});

/// What a simulation with SimulationOptions::events, and memory, kept, for tracing::write_chrome_trace.
[[nodiscard]] std::vector<tracing::RankTrace> traces_of(const Simulation& simulation);

}  // namespace expedite::cost
