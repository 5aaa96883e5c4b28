#include "expedite/cost/pair_overlap.h"

#include <algorithm>

namespace expedite::cost {
namespace {

class PairQueues {
 public:
  explicit PairQueues(const PairTimes& times) : times_(times) {}

  /// `ready`: when the micro-batch's last exchange ends; then when this one's does.
  void run(const PairPiece& piece, double& ready) {
    exposed_ += std::max(0.0, ready - compute_);
    compute_ = std::max(compute_, ready) + piece.before;
    double moment = compute_;
    for (const bool inner : {piece.inner_first, !piece.inner_first}) {
      double& link = inner ? within_ : between_;
      const double seconds = inner ? times_.within : times_.between;
      if (seconds > 0.0) {
        moment = link = std::max(link, moment) + seconds;
      }
    }
    ready = moment;
    compute_ += piece.after;
  }
  [[nodiscard]] double exposed() const { return exposed_; }

 private:
  const PairTimes& times_;
  double compute_ = 0.0;
  double between_ = 0.0;
  double within_ = 0.0;
  double exposed_ = 0.0;
};

}  // namespace

double pair_exposed(const PairTimes& times) {
  constexpr int kSettling = 3;
  constexpr int kCounted = 4;
  PairQueues queues(times);
  double forward_ready = 0.0;
  double backward_ready = 0.0;
  double settled = 0.0;
  const std::size_t nf = times.forward.size();
  const std::size_t nb = times.backward.size();
  for (int layer = 0; layer < kSettling + kCounted; ++layer) {
    settled = layer == kSettling ? queues.exposed() : settled;
    std::size_t b = 0;
    for (std::size_t f = 0; f < nf || b < nb;) {
      if (f == nf || (b < nb && (2 * b + 1) * nf <= (2 * f + 1) * nb)) {
        queues.run(times.backward[b++], backward_ready);
      } else {
        queues.run(times.forward[f++], forward_ready);
      }
    }
  }
  return (queues.exposed() - settled) / kCounted;
}

}  // namespace expedite::cost
