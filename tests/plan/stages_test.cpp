#include "expedite/plan/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "expedite/base/random.h"

namespace expedite::plan {
namespace {

/// The slowest stage of the best placement, by trying all.
double best_by_dynamic_programming(const std::vector<double>& layers, int stages) {
  const std::size_t n = layers.size();
  std::vector<double> before(n + 1, std::numeric_limits<double>::infinity());
  before[0] = 0.0;
  for (int s = 0; s < stages; ++s) {
    std::vector<double> now(n + 1, std::numeric_limits<double>::infinity());
    for (std::size_t end = 0; end <= n; ++end) {
      double sum = 0.0;
      for (std::size_t begin = end + 1; begin-- > 0;) {
        now[end] = std::min(now[end], std::max(before[begin], sum));
        if (begin > 0) {
          sum += layers[begin - 1];
        }
      }
    }
    before = now;
  }
  return before[n];
}

TEST(Stages, BalancesAsWellAsDynamicProgramming) {
  for (std::uint64_t trial = 0; trial < 300; ++trial) {
    const Philox random(trial, stream_of("stages"));
    const auto pick = [&](std::uint64_t i, std::uint64_t most) {
      return static_cast<std::int32_t>(random.bits(i) % most);
    };
    const PieceCosts costs{.dense = 1.0 + pick(0, 5),
                           .moe = 1.0 + pick(1, 5),
                           .head = 0.5 * pick(2, 8),
                           .prediction = 0.5 * pick(3, 8)};
    const std::vector<LayerRun> runs = {{architecture::LayerKind::dense, 1 + pick(4, 4)},
                                        {architecture::LayerKind::moe, 1 + pick(5, 40)}};
    const int stages = 1 + pick(6, 12);
    const std::int64_t mtp = pick(7, 2);
    // The head stays on the last stage, as a layer that nothing follows.
    std::vector<double> pieces(static_cast<std::size_t>(runs[0].count), costs.dense);
    pieces.insert(pieces.end(), static_cast<std::size_t>(runs[1].count), costs.moe);
    pieces.push_back(costs.head + static_cast<double>(mtp) * costs.prediction);
    Stages placed;
    place_layers(runs, mtp, costs, stages, true, placed);
    EXPECT_NEAR(placed.slowest, best_by_dynamic_programming(pieces, stages), 2e-3 * placed.slowest);
    const auto begin = placed.dense.begin();
    EXPECT_EQ(std::accumulate(begin, begin + stages, 0), runs[0].count);
    EXPECT_EQ(std::accumulate(placed.moe.begin(), placed.moe.begin() + stages, 0), runs[1].count);
    place_layers(runs, mtp, costs, stages, false, placed);
    EXPECT_EQ(std::accumulate(begin, begin + stages, 0), runs[0].count);
    EXPECT_EQ(std::accumulate(placed.moe.begin(), placed.moe.begin() + stages, 0), runs[1].count);
  }
}

TEST(Stages, KeepsSharesOfKindsThatAlternate) {
  ModelConfig model;
  for (int i = 0; i < 40; ++i) {
    model.sparse.push_back(i % 2 != 0);
    model.layers = i + 1;
  }
  std::int32_t dense = 0;
  std::int32_t moe = 0;
  for (const LayerRun& run : layer_runs(model)) {
    (run.kind == architecture::LayerKind::dense ? dense : moe) += run.count;
  }
  EXPECT_EQ(dense, 20);
  EXPECT_EQ(moe, 20);
  EXPECT_LE(layer_runs(model).size(), kMaxRuns);
}

}  // namespace
}  // namespace expedite::plan
