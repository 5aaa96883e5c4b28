#include "expedite/cost/chunk_overlap.h"

#include <algorithm>

#include "expedite/base/error.h"

namespace expedite::cost {
namespace {

/// Where both queues are.
class Queues {
 public:
  explicit Queues(const ChunkTimes& times)
      : times_(times), arrived_(times.out.size(), 0.0), returned_(times.out.size(), 0.0) {}

  void work(double seconds) { compute_ += seconds; }
  void send_out(int chunk) { arrived_[at(chunk)] = send(times_.out[at(chunk)]); }
  void back(int chunk) { returned_[at(chunk)] = send(times_.back[at(chunk)]); }
  void experts(int chunk) {
    wait_for(arrived_[at(chunk)]);
    work(times_.experts[at(chunk)]);
  }
  void behind(int chunk) { work(times_.behind.empty() ? 0.0 : times_.behind[at(chunk)]); }
  void unpack(int chunk) { wait_for(returned_[at(chunk)]); }
  [[nodiscard]] Overlap result() const { return {.seconds = compute_, .exposed = exposed_}; }

 private:
  [[nodiscard]] static std::size_t at(int chunk) { return static_cast<std::size_t>(chunk); }

  /// What compute has made ready, not before the wire is free.
  double send(double seconds) {
    wire_ = std::max(wire_, compute_) + seconds;
    return wire_;
  }
  void wait_for(double moment) {
    exposed_ += std::max(0.0, moment - compute_);
    compute_ = std::max(compute_, moment);
  }

  const ChunkTimes& times_;
  std::vector<double> arrived_;
  std::vector<double> returned_;
  double compute_ = 0.0;
  double wire_ = 0.0;
  double exposed_ = 0.0;
};

void continuous(Queues& queues, int chunks, int window, const ChunkTimes& times) {
  const int lag = std::max(1, window - 1);
  for (int c = 0; c < std::min(window, chunks); ++c) {
    queues.send_out(c);
  }
  queues.work(times.first_cover);
  for (int c = 0; c < chunks; ++c) {
    queues.experts(c);
    if (c + window < chunks) {
      queues.send_out(c + window);
    }
    queues.back(c);
    queues.behind(c);
    if (c >= lag) {
      queues.unpack(c - lag);
    }
  }
  queues.work(times.last_cover);
  for (int c = std::max(0, chunks - lag); c < chunks; ++c) {
    queues.unpack(c);
  }
}

void pairwise(Queues& queues, int chunks, const ChunkTimes& times) {
  for (int first = 0; first < chunks; first += 2) {
    const int end = std::min(first + 2, chunks);
    for (int c = first; c < end; ++c) {
      queues.send_out(c);
    }
    queues.work(first == 0 ? times.first_cover : 0.0);
    for (int c = first; c < end; ++c) {
      queues.experts(c);
      queues.back(c);
      queues.behind(c);
    }
    queues.work(end == chunks ? times.last_cover : 0.0);
    for (int c = first; c < end; ++c) {
      queues.unpack(c);
    }
  }
}

void one_by_one(Queues& queues, int chunks, const ChunkTimes& times) {
  queues.work(times.first_cover);
  for (int c = 0; c < chunks; ++c) {
    queues.send_out(c);
    queues.experts(c);
    queues.back(c);
    queues.unpack(c);
    queues.behind(c);
  }
  queues.work(times.last_cover);
}

}  // namespace

Overlap overlap(schedule::ChunkPipeline pipeline, int window, const ChunkTimes& times) {
  const std::size_t n = times.out.size();
  require(n >= 1 && times.experts.size() == n && times.back.size() == n &&
              (times.behind.empty() || times.behind.size() == n) && window >= 1,
          "times of {}, {}, {} and {} chunks with a window of {}: expected the same number, at least 1", n,
          times.experts.size(), times.back.size(), times.behind.size(), window);
  Queues queues(times);
  const int chunks = static_cast<int>(n);
  switch (pipeline) {
    case schedule::ChunkPipeline::continuous:
      continuous(queues, chunks, window, times);
      break;
    case schedule::ChunkPipeline::pairwise:
      pairwise(queues, chunks, times);
      break;
    case schedule::ChunkPipeline::none:
      one_by_one(queues, chunks, times);
      break;
  }
  return queues.result();
}

}  // namespace expedite::cost
