#include "bench/exposed_bound.h"

#include <algorithm>
#include <vector>

namespace expedite::bench {
namespace {

using schedule::Op;
using schedule::Pass;
using tracing::TraceEvent;

double seconds_of(const TraceEvent& event) {
  return static_cast<double>(event.end - event.begin) * 1e-9;
}

/// Times of one direction; its way out is `out`, its way back `back`.
class Direction {
 public:
  Direction(int chunks, Op out, Op back) : out_(out), back_(back) {
    const auto n = static_cast<std::size_t>(chunks);
    times_ = {.out = std::vector<double>(n, 0.0),
              .experts = std::vector<double>(n, 0.0),
              .back = std::vector<double>(n, 0.0),
              .behind = std::vector<double>(n, 0.0)};
  }

  void add(const TraceEvent& event, double wire_s) {
    const auto chunk = static_cast<std::size_t>(std::max(event.chunk, 0));
    if (event.op == out_) {
      times_.out[chunk] += wire_s;
    } else if (event.op == back_) {
      times_.back[chunk] += wire_s;
    } else if (event.op == Op::shared_experts) {
      (event.pass == Pass::weight_grad || event.chunk > 0 ? times_.last_cover : times_.first_cover) +=
          seconds_of(event);
    } else if (event.stream == schedule::Stream::compute && is_of_chunk(event)) {
      times_.experts[chunk] += seconds_of(event);
    }
  }
  /// A weight gradient of the chunks up to `last`.
  void add_behind(std::size_t last, double seconds) { times_.behind[last] += seconds; }
  [[nodiscard]] const cost::ChunkTimes& times() const { return times_; }

 private:
  static bool is_of_chunk(const TraceEvent& event) {
    return event.op == Op::permute || event.op == Op::unpermute || event.op == Op::experts ||
           event.op == Op::node_sum;
  }

  Op out_;
  Op back_;
  cost::ChunkTimes times_;
};

bool is_weight_grad(const TraceEvent& event) {
  return event.op == Op::experts && event.pass == Pass::weight_grad;
}

}  // namespace

LayerTimes layer_times(std::span<const TraceEvent> events, int chunks, comm::LinkLevel level,
                       double bytes_per_s) {
  Direction forward(chunks, Op::dispatch, Op::combine);
  Direction backward(chunks, Op::combine, Op::dispatch);
  bool runs_backward = false;
  std::vector<const TraceEvent*> weight_grads;  // each is of the chunks from its own to the next one's
  for (const TraceEvent& event : events) {
    const bool between_nodes = level == comm::LinkLevel::inter_node;
    const auto bytes = static_cast<double>(between_nodes ? event.rows.inter_node : event.rows.intra_node);
    runs_backward = runs_backward || event.pass != Pass::forward;
    if (is_weight_grad(event)) {
      weight_grads.push_back(&event);
    } else {
      (event.pass == Pass::forward ? forward : backward)
          .add(event, bytes_per_s > 0.0 ? bytes / bytes_per_s : 0.0);
    }
  }
  std::ranges::sort(weight_grads, {}, &TraceEvent::chunk);
  for (std::size_t i = 0; i < weight_grads.size(); ++i) {
    const int end = i + 1 < weight_grads.size() ? weight_grads[i + 1]->chunk : chunks;
    backward.add_behind(static_cast<std::size_t>(end - 1), seconds_of(*weight_grads[i]));
  }
  LayerTimes times{.forward = forward.times()};
  if (runs_backward) {
    times.backward = backward.times();
  }
  return times;
}

double exposed_bound_s(const schedule::EpPlan& plan, const LayerTimes& times) {
  double exposed = cost::overlap(plan.pipeline, plan.window, times.forward).exposed;
  if (!times.backward.out.empty()) {
    exposed += cost::overlap(plan.pipeline, plan.window, times.backward).exposed;
  }
  return exposed;
}

}  // namespace expedite::bench
