#include "expedite/cost/chunk_overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "expedite/base/error.h"
#include "expedite/base/random.h"

namespace expedite::cost {
namespace {

using schedule::ChunkPipeline;

ChunkTimes even(int chunks, double wire, double experts) {
  const auto n = static_cast<std::size_t>(chunks);
  return {.out = std::vector<double>(n, wire / chunks),
          .experts = std::vector<double>(n, experts / chunks),
          .back = std::vector<double>(n, wire / chunks)};
}

TEST(ChunkOverlap, WithoutAPipelineEverythingIsExposed) {
  for (const int chunks : {1, 2, 5}) {
    const Overlap result = overlap(ChunkPipeline::none, 2, even(chunks, 3.0, 10.0));
    EXPECT_NEAR(result.exposed, 6.0, 1e-12);
    EXPECT_NEAR(result.seconds, 16.0, 1e-12);
  }
}

TEST(ChunkOverlap, OneChunkHidesNothing) {
  for (const ChunkPipeline pipeline : {ChunkPipeline::continuous, ChunkPipeline::pairwise}) {
    EXPECT_NEAR(overlap(pipeline, 2, even(1, 3.0, 10.0)).exposed, 6.0, 1e-12);
  }
}

TEST(ChunkOverlap, APairHidesOneWayOutAndOneWayBack) {
  // Of each pair the first way out and the last way back stay, 1/N of the wire each; N/2 pairs.
  for (const int chunks : {2, 4, 8}) {
    EXPECT_NEAR(overlap(ChunkPipeline::pairwise, 2, even(chunks, 2.0, 20.0)).exposed, 2.0, 1e-12);
  }
}

TEST(ChunkOverlap, AFullWindowExposesTheEndsAlone) {
  for (const int chunks : {2, 3, 4, 8}) {
    for (const int window : {2, 3}) {
      EXPECT_NEAR(overlap(ChunkPipeline::continuous, window, even(chunks, 2.0, 20.0)).exposed, 4.0 / chunks,
                  1e-12);
    }
  }
}

TEST(ChunkOverlap, WhereTheWireIsSlowerItIsTheBound) {
  // The wire is never idle but while the last chunk's experts work.
  const Overlap result = overlap(ChunkPipeline::continuous, 2, even(4, 20.0, 4.0));
  EXPECT_GE(result.seconds, 40.0);
  EXPECT_LE(result.seconds, 40.0 + 2.0);
  EXPECT_NEAR(result.exposed, result.seconds - 4.0, 1e-12);
}

TEST(ChunkOverlap, CoverAndWeightGradientsHideTheEnds) {
  ChunkTimes times = even(4, 2.0, 20.0);
  times.first_cover = 0.3;
  times.last_cover = 0.2;
  EXPECT_NEAR(overlap(ChunkPipeline::continuous, 2, times).exposed, 1.0 - 0.5, 1e-12);
  times.behind = {0.0, 0.0, 0.0, 0.1};
  EXPECT_NEAR(overlap(ChunkPipeline::continuous, 2, times).exposed, 1.0 - 0.6, 1e-12);
}

TEST(ChunkOverlap, KeepsToItsBoundsWhateverTheTimes) {
  const Philox philox(7, 0);
  std::uint64_t drawn = 0;
  const auto uniform = [&] { return philox.uniform(drawn++); };
  const auto below = [&](int bound) { return static_cast<int>(uniform() * bound); };
  for (int i = 0; i < 2000; ++i) {
    const auto n = static_cast<std::size_t>(1 + below(6));
    ChunkTimes times;
    for (auto* values : {&times.out, &times.experts, &times.back, &times.behind}) {
      for (std::size_t c = 0; c < n; ++c) {
        values->push_back(below(4) == 0 ? 0.0 : uniform());
      }
    }
    times.first_cover = uniform();
    times.last_cover = uniform();
    const auto sum = [](const std::vector<double>& values) {
      return std::accumulate(values.begin(), values.end(), 0.0);
    };
    const double compute = sum(times.experts) + sum(times.behind) + times.first_cover + times.last_cover;
    const double wire = sum(times.out) + sum(times.back);
    for (const ChunkPipeline pipeline :
         {ChunkPipeline::continuous, ChunkPipeline::pairwise, ChunkPipeline::none}) {
      const Overlap result = overlap(pipeline, 1 + below(3), times);
      EXPECT_NEAR(result.seconds, compute + result.exposed, 1e-9);
      EXPECT_GE(result.seconds, std::max(compute, wire) - 1e-9);
      EXPECT_LE(result.seconds, compute + wire + 1e-9);
    }
  }
}

TEST(ChunkOverlap, WantsTimesOfEveryChunk) {
  ChunkTimes times = even(3, 1.0, 1.0);
  times.back.pop_back();
  EXPECT_THROW((void)overlap(ChunkPipeline::none, 2, times), Error);
  EXPECT_THROW((void)overlap(ChunkPipeline::none, 2, {}), Error);
  EXPECT_THROW((void)overlap(ChunkPipeline::none, 0, even(3, 1.0, 1.0)), Error);
}

}  // namespace
}  // namespace expedite::cost
