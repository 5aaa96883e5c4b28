#include "expedite/plan/search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <thread>
#include <tuple>

namespace expedite::plan {
namespace {

auto order(const Candidate& candidate) {
  const Strategy& s = candidate.strategy;
  return std::tuple(candidate.cost.seconds.total, s.tp, s.cp, s.pp, s.vpp, s.ep, s.etp, s.zero, s.micro_batch,
                    s.chunks, s.recompute, s.pipeline, s.dispatcher);
}

bool before(const Candidate& a, const Candidate& b) {
  return order(a) < order(b);
}

bool alike(const Candidate& a, const Candidate& b) {
  constexpr double kNothing = 1e-3;
  const auto near = [](double x, double y) { return std::abs(x - y) <= kNothing * std::min(x, y); };
  Strategy same = b.strategy;
  same.dispatcher = a.strategy.dispatcher;
  return same == a.strategy && near(a.cost.seconds.total, b.cost.seconds.total) &&
         near(a.cost.memory.total(), b.cost.memory.total());
}

/// Of candidates that are alike the fastest, which names the others. `best` is sorted.
void merge_alike(std::vector<Candidate>& best) {
  std::vector<Candidate> merged;
  for (Candidate& candidate : best) {
    const auto first =
        std::ranges::find_if(merged, [&](const Candidate& other) { return alike(other, candidate); });
    if (first == merged.end()) {
      merged.push_back(std::move(candidate));
    } else {
      first->alternatives.push_back(candidate.strategy.dispatcher);
    }
  }
  best = std::move(merged);
}

/// The fastest candidates of one thread.
class Best {
 public:
  explicit Best(std::size_t most) : most_(most) {}

  void offer(const Candidate& candidate) {
    if (heap_.size() == most_) {
      if (!before(candidate, heap_.front())) {
        return;
      }
      std::ranges::pop_heap(heap_, before);
      heap_.pop_back();
    }
    heap_.push_back(candidate);
    std::ranges::push_heap(heap_, before);
  }
  /// Nothing slower than this can be among the best.
  [[nodiscard]] double limit() const {
    return heap_.size() == most_ ? heap_.front().cost.seconds.total : std::numeric_limits<double>::infinity();
  }
  [[nodiscard]] const std::vector<Candidate>& all() const { return heap_; }

 private:
  std::size_t most_;
  std::vector<Candidate> heap_;
};

/// What pieces' times depend on.
std::vector<Strategy> outer_strategies(const SearchSpace& space) {
  std::vector<Strategy> groups;
  for (const std::int32_t tp : space.tp) {
    for (const std::int32_t cp : space.cp) {
      for (const std::int32_t mb : space.micro_batch) {
        for (const Recompute recompute : space.recompute) {
          for (const std::int32_t ep : space.ep) {
            for (const std::int32_t etp : space.etp) {
              for (const schedule::Dispatcher dispatcher : space.dispatcher) {
                for (const std::int32_t chunks : space.chunks) {
                  Strategy s;
                  s.tp = tp;
                  s.cp = cp;
                  s.micro_batch = mb;
                  s.recompute = recompute;
                  s.ep = ep;
                  s.etp = etp;
                  s.dispatcher = dispatcher;
                  s.chunks = chunks;
                  groups.push_back(s);
                }
              }
            }
          }
        }
      }
    }
  }
  return groups;
}

class Searcher {
 public:
  Searcher(const CostContext& context, const SearchSpace& space, const SearchOptions& options)
      : context_(context),
        space_(space),
        options_(options),
        memory_limit_(options.memory_limit > 0.0 ? options.memory_limit : context.machine().memory_bytes),
        groups_(outer_strategies(space)) {}

  SearchResult run() {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (int i = 1; i < options_.threads; ++i) {
      threads.emplace_back([this] { work(); });
    }
    work();
    for (std::thread& thread : threads) {
      thread.join();
    }
    std::ranges::sort(result_.best, before);
    keep_first(offered());
    merge_alike(result_.best);
    keep_first(static_cast<std::size_t>(options_.top));
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(result_);
  }

 private:
  /// Enough for `top` of them when all dispatchers are alike.
  [[nodiscard]] std::size_t offered() const {
    return static_cast<std::size_t>(options_.top) * space_.dispatcher.size();
  }

  void keep_first(std::size_t count) {
    if (result_.best.size() > count) {
      result_.best.erase(result_.best.begin() + static_cast<std::ptrdiff_t>(count), result_.best.end());
    }
  }

  void work() {
    const StepCoster coster(context_);
    Best best(offered());
    SearchResult mine;
    mine.smallest_memory = std::numeric_limits<double>::infinity();
    while (true) {
      const std::size_t group = next_.fetch_add(1);
      if (group >= groups_.size()) {
        break;
      }
      search_group(groups_[group], coster, best, mine);
      report(group);
    }
    const std::scoped_lock lock(mutex_);
    result_.best.insert(result_.best.end(), best.all().begin(), best.all().end());
    result_.costed += mine.costed;
    result_.pruned += mine.pruned;
    result_.too_large += mine.too_large;
    for (std::size_t i = 0; i < mine.illegal.size(); ++i) {
      result_.illegal[i] += mine.illegal[i];
    }
    result_.smallest_memory = result_.smallest_memory == 0.0
                                  ? mine.smallest_memory
                                  : std::min(result_.smallest_memory, mine.smallest_memory);
  }

  void search_group(Strategy s, const StepCoster& coster, Best& best, SearchResult& mine) {
    PieceTimes pieces;
    bool have_pieces = false;
    double bound = 0.0;
    for (const std::int32_t pp : space_.pp) {
      const std::int64_t others = std::int64_t{s.tp} * s.cp * pp;
      if (options_.devices % others != 0) {
        ++mine.illegal[static_cast<std::size_t>(Illegal::devices)];
        continue;
      }
      s.pp = pp;
      s.dp = static_cast<std::int32_t>(options_.devices / others);
      for (const std::int32_t vpp : space_.vpp) {
        s.vpp = vpp;
        for (const Pipeline pipeline : space_.pipeline) {
          s.pipeline = pipeline;
          if (const auto reason = illegal(s, context_.model(), context_.workload(), options_.devices)) {
            ++mine.illegal[static_cast<std::size_t>(*reason)];
            continue;
          }
          if (!have_pieces) {
            pieces = piece_times(context_, s);
            bound = least_seconds(s, pieces);
            have_pieces = true;
          }
          for (const std::int32_t zero : space_.zero) {
            // With one replica there is nothing to shard: zero 0 is the same.
            if (zero > 0 && s.dp * s.cp == 1) {
              continue;
            }
            s.zero = zero;
            if (space_.accepted && !space_.accepted(s)) {
              ++mine.illegal[static_cast<std::size_t>(Illegal::program)];
              continue;
            }
            if (options_.prune && bound > std::min(limit_.load(std::memory_order_relaxed), best.limit())) {
              ++mine.pruned;
              continue;
            }
            consider(s, coster.cost(s, pieces), best, mine);
          }
        }
      }
    }
  }

  void consider(const Strategy& s, const StepCost& cost, Best& best, SearchResult& mine) {
    ++mine.costed;
    const double memory = cost.memory.total();
    mine.smallest_memory = std::min(mine.smallest_memory, memory);
    if (memory > memory_limit_) {
      ++mine.too_large;
      return;
    }
    best.offer({s, cost});
    double known = limit_.load(std::memory_order_relaxed);
    while (best.limit() < known && !limit_.compare_exchange_weak(known, best.limit())) {
    }
  }

  /// Of all stages together, spread over them evenly and without bubbles; what another micro-batch may hide
  /// is left out.
  [[nodiscard]] double least_seconds(const Strategy& s, const PieceTimes& pieces) const {
    const ModelConfig& model = context_.model();
    const auto least = [](const LayerTimes& times) {
      return std::min(times.total() - times.forward[Cause::expert] - times.backward[Cause::expert],
                      times.paired.total() - times.paired[Cause::expert]);
    };
    const double whole =
        static_cast<double>(model.count(architecture::LayerKind::dense)) * least(pieces.dense) +
        static_cast<double>(model.count(architecture::LayerKind::moe)) * least(pieces.moe) +
        static_cast<double>(model.prediction_layers) * least(pieces.prediction) + least(pieces.head);
    const double micro_batches_over_stages = static_cast<double>(context_.workload().global_batch) * s.tp *
                                             s.cp / static_cast<double>(options_.devices) / s.micro_batch;
    // A hair less, so that rounding never makes the bound more than the cost itself.
    return (1.0 - 1e-9) * whole * micro_batches_over_stages;
  }

  void report(std::size_t group) {
    if (options_.progress && group % 64 == 0) {
      const std::scoped_lock lock(mutex_);
      options_.progress(static_cast<double>(group) / static_cast<double>(groups_.size()));
    }
  }

  const CostContext& context_;
  const SearchSpace& space_;
  const SearchOptions& options_;
  double memory_limit_;
  std::vector<Strategy> groups_;
  std::atomic<std::size_t> next_{0};
  std::atomic<double> limit_{std::numeric_limits<double>::infinity()};
  std::mutex mutex_;
  SearchResult result_;
};

std::vector<std::int32_t> divisors(std::int64_t of, std::int64_t most) {
  std::vector<std::int32_t> list;
  for (std::int64_t d = 1; d <= std::min(of, most); ++d) {
    if (of % d == 0) {
      list.push_back(static_cast<std::int32_t>(d));
    }
  }
  return list;
}

}  // namespace

SearchSpace default_space(const CostContext& context, std::int64_t devices) {
  const ModelConfig& model = context.model();
  const Machine& machine = context.machine();
  const auto domain = machine.level_count > 0 ? static_cast<std::int64_t>(machine.levels[0].ranks) : 1;
  SearchSpace space{
      .tp = divisors(devices, std::min<std::int64_t>({domain, 16, model.heads})),
      .cp = context.workload().seq >= 16384 ? divisors(devices, 16) : divisors(devices, 2),
      .pp = divisors(devices, std::min<std::int64_t>(64, model.layers + model.prediction_layers)),
      .vpp = {1, 2, 3, 4, 5, 6, 8},
      .ep = {1},
      .etp = {1},
      .zero = {0, 1, 2, 3},
      .micro_batch = {1, 2, 4, 8},
      .chunks = {1},
      .recompute = {Recompute::none, Recompute::half, Recompute::full},
      .pipeline = {Pipeline::one_f_one_b, Pipeline::zero_bubble_h1, Pipeline::dualpipe, Pipeline::adaptive},
      .dispatcher = {schedule::Dispatcher::alltoall}};
  if (!context.software().fused_attention) {
    space.recompute.insert(space.recompute.begin() + 1, Recompute::selective);
  }
  if (model.experts > 0) {
    space.ep = divisors(model.experts, std::min(devices, model.experts));
    space.etp = divisors(model.moe_intermediate_size, 4);
    std::erase(space.etp, 3);
    space.chunks = {1, 2, 4, 8};
    space.recompute.insert(std::ranges::find(space.recompute, Recompute::half), Recompute::moe_act);
    space.dispatcher.assign(schedule::kDispatchers.begin(), schedule::kDispatchers.end());
  }
  return space;
}

SearchResult search(const CostContext& context, const SearchSpace& space, const SearchOptions& options) {
  return Searcher(context, space, options).run();
}

}  // namespace expedite::plan
