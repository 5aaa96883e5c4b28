#include <algorithm>
#include <array>
#include <deque>

#include "expedite/schedule/pipeline_kinds.h"

namespace expedite::schedule {
namespace {

/// Micro-batches enter at both ends of the pipeline: the first half of them at stage 0 (virtual stage 0), the
/// others at stage p - 1 (virtual stage 1). Stages s and p - 1 - s do the same with the directions exchanged,
/// so the order is written for `near`, the direction whose end is nearer, and `far`.
class DualPipeOrder {
 public:
  DualPipeOrder(const PipelineShape& shape, int stage)
      : half_(shape.micro_batches / 2),
        stages_(shape.stages),
        from_end_(std::min(stage, shape.stages - 1 - stage)),
        from_middle_(shape.stages / 2 - 1 - from_end_),
        near_(stage < shape.stages / 2 ? 0 : 1),
        far_(1 - near_) {}

  std::vector<Action> build() {
    warm_up();
    steady_state();
    cool_down();
    return std::move(order_);
  }

 private:
  void warm_up() {
    for (int i = 0; i < 2 * from_middle_; ++i) {
      forward(near_);
    }
    for (int i = 0; i < from_end_ + 1; ++i) {
      forward(near_);
      forward(far_);
    }
    for (int i = 0; i < from_middle_; ++i) {
      input_grad(far_);
      weight_grad();
      forward(far_);
    }
  }

  void steady_state() {
    for (int i = 0; i < half_ - stages_ + from_end_ + 1; ++i) {
      if (i == 0 && from_middle_ == 0) {
        // The two middle stages wait for each other here: what one sends before the other's backward must
        // not wait for a pair to end.
        forward(near_);
        backward(far_);
      } else {
        pair(near_, far_);
      }
      pair(far_, near_);
    }
  }

  void cool_down() {
    for (int i = 0; i < from_middle_; ++i) {
      backward(far_);
      pair(far_, near_);
    }
    // From the middle of these on, weight gradients are kept for the waits that follow.
    const int backwards = 2 * (from_end_ + 1);
    for (int i = 0; i < backwards; ++i) {
      const int direction = i % 2 == 0 ? far_ : near_;
      if (i <= from_end_) {
        backward(direction);
      } else {
        input_grad(direction);
      }
    }
    for (int i = 0; i < from_middle_; ++i) {
      weight_grad();
      input_grad(near_);
    }
    while (!kept_back_.empty()) {
      weight_grad();
    }
  }

  Action next(Phase phase, int direction) {
    auto& count = (phase == Phase::forward ? forwards_ : backwards_)[static_cast<std::size_t>(direction)];
    return {phase, direction, direction * half_ + count++};
  }
  void forward(int direction) { order_.push_back(next(Phase::forward, direction)); }
  void backward(int direction) { order_.push_back(next(Phase::backward, direction)); }
  void input_grad(int direction) {
    order_.push_back(next(Phase::input_grad, direction));
    kept_back_.push_back(order_.back());
  }
  void weight_grad() {
    order_.push_back(kept_back_.front());
    order_.back().phase = Phase::weight_grad;
    kept_back_.pop_front();
  }
  void pair(int forward_direction, int backward_direction) {
    forward(forward_direction);
    order_.back().paired = true;
    backward(backward_direction);
    order_.back().paired = true;
  }

  int half_;
  int stages_;
  int from_end_;
  int from_middle_;
  int near_;
  int far_;
  std::array<int, 2> forwards_{};
  std::array<int, 2> backwards_{};
  std::deque<Action> kept_back_;
  std::vector<Action> order_;
};

}  // namespace

std::vector<Action> dualpipe_order(const PipelineShape& shape, int stage) {
  return DualPipeOrder(shape, stage).build();
}

}  // namespace expedite::schedule
