#include "bench/zipf_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/cost/routing.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::bench {
namespace {

class Tokens {
 public:
  Tokens(DType dtype, std::int64_t rows, std::int64_t columns)
      : buffer_(pool_.allocate(rows * columns * size_of(dtype), MemoryCategory::workspace)),
        view_(buffer_.view(dtype, {rows, columns})) {}
  [[nodiscard]] TensorView view() const { return view_; }

 private:
  MemoryPool pool_;
  Buffer buffer_;
  TensorView view_;
};

/// [E] how many rows have each of the first columns among their `topk` largest, of equals the first.
std::vector<std::int64_t> count_choices(std::int64_t experts, std::int64_t topk, ConstTensorView tokens) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(experts), 0);
  const auto value = [&](std::int64_t row, std::int64_t column) {
    return tokens.dtype() == DType::bf16 ? static_cast<float>(tokens.row<bf16>(row)[column])
                                         : tokens.row<float>(row)[column];
  };
  std::vector<std::int64_t> order(counts.size());
  for (std::int64_t row = 0; row < tokens.rows(); ++row) {
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::ranges::greater(),
                             [&](std::int64_t column) { return value(row, column); });
    for (std::int64_t i = 0; i < topk; ++i) {
      ++counts[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])];
    }
  }
  return counts;
}

TEST(ZipfTokens, ExpertsAreChosenAsOftenAsTheRoutingModelSays) {
  constexpr std::int64_t kTokens = 20'000;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const double exponent : {0.0, 0.8, 1.5}) {
      const Tokens tokens(dtype, kTokens, 16);
      fill_zipf_tokens(12, exponent, 3, 0, tokens.view());
      const auto counts = count_choices(12, 3, tokens.view());
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), 3 * kTokens);
      const cost::Routing routing{.experts = 12, .topk = 3, .weights = cost::zipf_weights(12, exponent)};
      for (std::int64_t expert = 0; expert < 12; ++expert) {
        const double expected = hit_probability(routing, std::array{expert});
        const double found = static_cast<double>(counts[static_cast<std::size_t>(expert)]) / kTokens;
        // Five standard deviations; bf16 moves a little more, in favour of the first experts.
        EXPECT_NEAR(found, expected, 5 * 0.5 / std::sqrt(kTokens) + (dtype == DType::bf16 ? 0.01 : 0.0))
            << "expert " << expert << ", exponent " << exponent;
      }
    }
  }
}

TEST(ZipfTokens, AreTheSameEveryTimeAndOthersOnOtherRanks) {
  const Tokens a(DType::f32, 7, 5);
  const Tokens b(DType::f32, 7, 5);
  const auto values = [](const Tokens& tokens) {
    const auto span = tokens.view().span<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  fill_zipf_tokens(4, 1.0, 3, 1, a.view());
  fill_zipf_tokens(4, 1.0, 3, 1, b.view());
  EXPECT_EQ(values(a), values(b));
  fill_zipf_tokens(4, 1.0, 3, 2, b.view());
  EXPECT_NE(values(a), values(b));
  EXPECT_THROW(fill_zipf_tokens(6, 1.0, 3, 1, a.view()), Error);
}

}  // namespace
}  // namespace expedite::bench
