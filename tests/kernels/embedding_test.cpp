#include "expedite/kernels/embedding.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <string>

#include "tests/kernels/matrix.h"
#include "tests/kernels/targets.h"

namespace expedite::kernels {
namespace {

struct Case {
  std::int64_t tokens;
  std::int64_t columns;
  std::int64_t gap;
};
const Case kCases[] = {{0, 4, 0}, {1, 1, 0}, {7, 0, 1}, {30, 19, 3}, {100, 160, 0}};
constexpr std::int64_t kVocabulary = 11;

std::vector<std::int32_t> random_tokens(std::int64_t count, std::mt19937& generator) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens) {
    token = static_cast<std::int32_t>(generator() % kVocabulary);
  }
  return tokens;
}

template <typename T>
void check_embedding() {
  std::mt19937 generator(1);
  for (const Case& shape : kCases) {
    auto table = Matrix<T>::random(kVocabulary, shape.columns, generator, 1.0, shape.gap);
    const auto tokens = random_tokens(shape.tokens, generator);
    Matrix<T> rows(shape.tokens, shape.columns, shape.gap);
    embedding(table.view(), tokens, rows.view());
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        ASSERT_EQ(rows.at(t, c), table.at(tokens[static_cast<std::size_t>(t)], c));
      }
    }
    EXPECT_TRUE(rows.gaps_untouched());
  }
}

TEST(Embedding, TakesRowsOfTheTable) {
  check_embedding<float>();
  check_embedding<bf16>();
}

template <typename T>
void check_backward() {
  std::mt19937 generator(2);
  for (const Case& shape : kCases) {
    auto dy = Matrix<T>::random(shape.tokens, shape.columns, generator, 1.0, shape.gap);
    auto dtable = Matrix<float>::random(kVocabulary, shape.columns, generator, 1.0, shape.gap);
    auto expected = dtable;
    const auto tokens = random_tokens(shape.tokens, generator);
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        expected(tokens[static_cast<std::size_t>(t)], c) += static_cast<float>(dy.at(t, c));
      }
    }
    for (const int threads : {1, 3}) {
      auto result = dtable;
      const int before = omp_get_max_threads();
      omp_set_num_threads(threads);
      embedding_backward(dy.view(), tokens, result.view());
      omp_set_num_threads(before);
      EXPECT_TRUE(result.same_bits(expected)) << "rows of one token are added in order, by any team";
    }
  }
}

TEST(Embedding, AddsGradientsInTheOrderOfTokens) {
  for_each_target(check_backward<float>);
  for_each_target(check_backward<bf16>);
}

TEST(EmbeddingErrors, NameTheToken) {
  Matrix<float> table(kVocabulary, 4);
  Matrix<float> rows(2, 4);
  const auto message = [&](std::vector<std::int32_t> tokens, bool backward) -> std::string {
    try {
      if (backward) {
        embedding_backward(rows.view(), tokens, table.view());
      } else {
        embedding(table.view(), tokens, rows.view());
      }
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  for (const bool backward : {false, true}) {
    EXPECT_EQ(message({0, 10}, backward), "no error");
    EXPECT_EQ(message({0, 11}, backward),
              "token 1 is 11, outside the model's vocabulary of 11: is it the tokenizer of this model?");
    EXPECT_EQ(message({-1, 0}, backward),
              "token 0 is -1, outside the model's vocabulary of 11: is it the tokenizer of this model?");
    EXPECT_EQ(message({0}, backward), "1 tokens for 2 rows");
  }
}

}  // namespace
}  // namespace expedite::kernels
