// Searches all strategies for the fastest that fit into memory.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "expedite/plan/step_cost.h"
#include "expedite/plan/strategy.h"

namespace expedite::plan {

/// Every combination of these is considered; dp follows from the devices.
struct SearchSpace {
  std::vector<std::int32_t> tp;
  std::vector<std::int32_t> cp;
  std::vector<std::int32_t> pp;
  std::vector<std::int32_t> vpp;
  std::vector<std::int32_t> ep;
  std::vector<std::int32_t> etp;
  std::vector<std::int32_t> zero;
  std::vector<std::int32_t> micro_batch;
  std::vector<std::int32_t> chunks;
  std::vector<Recompute> recompute;
  std::vector<Pipeline> pipeline;
  std::vector<schedule::Dispatcher> dispatcher;
  /// Where it is not empty: which of the combinations count. Called by several threads at once.
  std::function<bool(const Strategy&)> accepted = {};
};

/// All that can make sense for the model on so many devices: tp within a domain of the fast links, pp up to
/// 64 stages, ep up to the experts, etp up to 4, micro-batches up to 8, chunks up to 8.
[[nodiscard]] SearchSpace default_space(const CostContext& context, std::int64_t devices);

struct SearchOptions {
  std::int64_t devices = 1;
  std::int64_t top = 10;
  double memory_limit = 0.0;  // bytes of a device; 0: its memory
  int threads = 1;
  bool prune = true;
  std::function<void(double)> progress;  // share done, from one thread at a time; may be empty
};

struct Candidate {
  Strategy strategy;
  StepCost cost;
  /// Dispatchers that would do as well: with one of them and every other knob the same, the step and its
  /// memory are within a thousandth.
  std::vector<schedule::Dispatcher> alternatives = {};
};

struct SearchResult {
  std::vector<Candidate> best;  // fastest first
  std::int64_t costed = 0;      // in time and memory
  std::int64_t pruned = 0;      // legal, and known to be slower than the best without being costed
  std::int64_t too_large = 0;   // of those costed, beyond the memory limit
  std::array<std::int64_t, kIllegalNames.size()> illegal{};
  double smallest_memory = 0.0;  // bytes, of all costed
  double seconds = 0.0;          // of the search
};

/// The `top` fastest, those that only differ by dispatchers that change nothing as one. With pruning the same as without: what every micro-batch takes on all stages together,
/// divided by the stages, bounds the step from below for all pp, vpp, zero and schedules, and only groups
/// whose bound is beyond the slowest of the best so far are left out.
[[nodiscard]] SearchResult search(const CostContext& context, const SearchSpace& space,
                                  const SearchOptions& options);

}  // namespace expedite::plan
