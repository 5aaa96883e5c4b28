#include "expedite/train/batches.h"

#include <gtest/gtest.h>

#include <numeric>

namespace expedite::train {
namespace {

struct Text {
  std::vector<std::int32_t> tokens;
  std::vector<Window> windows;
};

Text make_text(std::int64_t sequences) {
  Text text;
  text.tokens.resize(1000);
  std::iota(text.tokens.begin(), text.tokens.end(), 0);
  for (std::int64_t i = 0; i < sequences; ++i) {
    text.windows.push_back({.begin = 10 * i, .length = 3 + i % 4});
  }
  return text;
}

// Whatever the layout, every sequence is computed once, by rank order, and totals agree on every rank.
TEST(Batches, SpreadEverySequenceOverRanksAndMicroBatches) {
  for (const std::int64_t sequences : {0, 1, 3, 8, 13}) {
    const Text text = make_text(sequences);
    for (const int ranks : {1, 2, 4, 5}) {
      for (const std::int64_t micro_batch_size : {1, 2, 8}) {
        std::vector<std::int32_t> firsts;
        std::int64_t total = 0;
        std::size_t micro_batches = 0;
        std::vector<std::int64_t> micro_batch_tokens;
        for (int rank = 0; rank < ranks; ++rank) {
          const StepBatch step = distribute(text.tokens, text.windows, micro_batch_size, rank, ranks);
          if (rank == 0) {
            micro_batches = step.micro_batches.size();
            total = step.total_tokens;
            micro_batch_tokens = step.micro_batch_tokens;
          }
          EXPECT_EQ(step.micro_batches.size(), micro_batches);
          EXPECT_EQ(step.total_tokens, total);
          EXPECT_EQ(step.micro_batch_tokens, micro_batch_tokens);
          for (std::size_t i = 0; i < micro_batches; ++i) {
            const model::MicroBatch& batch = step.micro_batches[i];
            EXPECT_LE(batch.sequences(), micro_batch_size);
            for (std::size_t s = 0; s + 1 < batch.bounds.size(); ++s) {
              const auto begin = static_cast<std::size_t>(batch.bounds[s]);
              firsts.push_back(batch.tokens[begin]);
              EXPECT_EQ(batch.targets[begin], batch.tokens[begin] + 1);
              EXPECT_EQ(batch.positions[begin], 0);
            }
          }
        }
        ASSERT_EQ(static_cast<std::int64_t>(firsts.size()), sequences);
        for (std::size_t i = 0; i < firsts.size(); ++i) {
          EXPECT_EQ(firsts[i], static_cast<std::int32_t>(10 * i));
        }
        EXPECT_EQ(std::reduce(micro_batch_tokens.begin(), micro_batch_tokens.end(), std::int64_t{0}), total);
      }
    }
  }
}

}  // namespace
}  // namespace expedite::train
