#include "bench/exposed_bound.h"

#include <gtest/gtest.h>

namespace expedite::bench {
namespace {

using schedule::Op;
using schedule::Pass;
using schedule::Stream;
using tracing::TraceEvent;

TraceEvent work(Op op, Pass pass, int chunk, std::int64_t milliseconds) {
  return {.op = op, .pass = pass, .stream = Stream::compute, .chunk = chunk, .end = milliseconds * 1'000'000};
}

/// 1000 bytes take a second.
TraceEvent sent(Op op, Pass pass, int chunk, std::int64_t bytes) {
  return {.op = op, .pass = pass, .stream = Stream::inter, .chunk = chunk, .rows = {.inter_node = bytes}};
}

TEST(ExposedBound, TakesWorkFromTheClockAndTheWireFromBytes) {
  const std::vector<TraceEvent> events = {
      work(Op::router, Pass::forward, -1, 900),           work(Op::permute, Pass::forward, 0, 10),
      sent(Op::dispatch, Pass::forward, 0, 100),          work(Op::shared_experts, Pass::forward, 0, 5),
      sent(Op::dispatch, Pass::forward, 1, 200),          work(Op::experts, Pass::forward, 0, 400),
      work(Op::experts, Pass::forward, 1, 500),           sent(Op::combine, Pass::forward, 0, 300),
      work(Op::shared_experts, Pass::forward, 1, 6),      work(Op::unpermute, Pass::forward, 1, 20),
      sent(Op::combine, Pass::input_grad, 1, 70),         work(Op::experts, Pass::recompute, 1, 30),
      work(Op::experts, Pass::input_grad, 1, 40),         work(Op::shared_experts, Pass::input_grad, -1, 7),
      work(Op::shared_experts, Pass::weight_grad, -1, 8), sent(Op::dispatch, Pass::input_grad, 1, 80),
  };
  const LayerTimes times = layer_times(events, 2, comm::LinkLevel::inter_node, 1000.0);
  const auto expect = [](const std::vector<double>& values, double first, double second) {
    ASSERT_EQ(values.size(), 2U);
    EXPECT_DOUBLE_EQ(values[0], first);
    EXPECT_DOUBLE_EQ(values[1], second);
  };
  expect(times.forward.out, 0.1, 0.2);
  expect(times.forward.experts, 0.41, 0.52);
  expect(times.forward.back, 0.3, 0.0);
  EXPECT_DOUBLE_EQ(times.forward.first_cover, 0.005);
  EXPECT_DOUBLE_EQ(times.forward.last_cover, 0.006);
  expect(times.backward.out, 0.0, 0.07);
  expect(times.backward.experts, 0.0, 0.07);
  expect(times.backward.back, 0.0, 0.08);
  EXPECT_DOUBLE_EQ(times.backward.first_cover, 0.007);
  EXPECT_DOUBLE_EQ(times.backward.last_cover, 0.008);
  // Of the other level nothing was sent; without links the wire takes no time.
  EXPECT_EQ(layer_times(events, 2, comm::LinkLevel::intra_node, 1000.0).forward.out[1], 0.0);
  EXPECT_EQ(layer_times(events, 2, comm::LinkLevel::inter_node, 0.0).forward.out[1], 0.0);
}

TEST(ExposedBound, AWeightGradientIsBehindTheLastOfItsChunks) {
  const std::vector<TraceEvent> events = {work(Op::experts, Pass::weight_grad, 0, 100),
                                          work(Op::experts, Pass::weight_grad, 2, 50)};
  const LayerTimes times = layer_times(events, 4, comm::LinkLevel::inter_node, 1.0);
  EXPECT_EQ(times.backward.behind, (std::vector<double>{0.0, 0.1, 0.0, 0.05}));
}

TEST(ExposedBound, IsThatOfBothDirections) {
  const std::vector<TraceEvent> events = {
      sent(Op::dispatch, Pass::forward, -1, 100),    work(Op::experts, Pass::forward, -1, 1000),
      sent(Op::combine, Pass::forward, -1, 200),     sent(Op::combine, Pass::input_grad, -1, 300),
      work(Op::experts, Pass::input_grad, -1, 1000), sent(Op::dispatch, Pass::input_grad, -1, 400)};
  const auto bound = [&](std::span<const TraceEvent> some) {
    return exposed_bound_s({}, layer_times(some, 1, comm::LinkLevel::inter_node, 1000.0));
  };
  EXPECT_NEAR(bound(events), 1.0, 1e-12);
  EXPECT_NEAR(bound(std::span(events).first(3)), 0.3, 1e-12);
}

}  // namespace
}  // namespace expedite::bench
