#include "expedite/train/yardstick.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "expedite/base/error.h"
#include "expedite/base/random.h"
#include "tests/test_folder.h"

namespace expedite::train {
namespace {

Document document(std::string text) {
  return {"text", 0, std::move(text)};
}

std::string uniform_bytes(std::int64_t bytes, std::uint64_t symbols, std::uint64_t seed) {
  const Philox random(seed, 0);
  std::string text;
  for (std::int64_t i = 0; i < bytes; ++i) {
    text += static_cast<char>('a' + random.bits(static_cast<std::uint64_t>(i)) % symbols);
  }
  return text;
}

/// A source of order 2: three letters may follow each pair, with probabilities 1/2, 1/4, 1/4. 1.5 bits per
/// byte.
std::string order2_text(std::int64_t bytes, std::uint64_t seed) {
  const Philox random(seed, 1);
  std::string text = "ab";
  while (static_cast<std::int64_t>(text.size()) < bytes) {
    const auto a = static_cast<std::uint64_t>(text[text.size() - 2]);
    const auto b = static_cast<std::uint64_t>(text[text.size() - 1]);
    constexpr std::uint64_t kChoices[] = {0, 0, 1, 2};
    const std::uint64_t choice = kChoices[random.bits(text.size()) % 4];
    text += static_cast<char>('a' + (5 * a + 3 * b + 7 * choice) % 20);
  }
  return text;
}

/// The model as yardstick.h describes it, with the concentrations given.
double reference_bits(const std::string& train, const std::string& validation, const std::vector<double>& d) {
  std::map<std::string, double> count;  // of context and byte
  std::map<std::string, double> total;  // of context, marked by its length
  for (std::size_t i = 0; i < train.size(); ++i) {
    for (std::size_t k = 0; k <= std::min<std::size_t>(i, 2); ++k) {
      count[train.substr(i - k, k + 1)] += 1;
      total[train.substr(i - k, k)] += 1;
    }
  }
  double bits = 0.0;
  for (std::size_t i = 0; i < validation.size(); ++i) {
    double p = 1.0 / 256.0;
    for (std::size_t k = 0; k <= std::min<std::size_t>(i, 2); ++k) {
      p = (count[validation.substr(i - k, k + 1)] + d[k] * p) / (total[validation.substr(i - k, k)] + d[k]);
    }
    bits -= std::log2(p);
  }
  return bits / static_cast<double>(validation.size());
}

TEST(Markov2, ReachesTheEntropyOfAnOrder2Source) {
  const std::vector<Document> train = {document(order2_text(400'000, 1))};
  const std::vector<Document> validation = {document(order2_text(50'000, 2))};
  EXPECT_NEAR(markov2_bits_per_byte(train, validation), 1.5, 0.03);
}

TEST(Markov2, ReachesTheEntropyOfASourceWithoutMemory) {
  const std::vector<Document> train = {document(uniform_bytes(200'000, 16, 1))};
  const std::vector<Document> validation = {document(uniform_bytes(50'000, 16, 2))};
  EXPECT_NEAR(markov2_bits_per_byte(train, validation), 4.0, 0.02);
}

TEST(Markov2, IsCloseToTheBestConcentrationsThereAre) {
  const std::string train = order2_text(3000, 3) + uniform_bytes(1000, 20, 4);
  const std::string validation = order2_text(3000, 5) + uniform_bytes(1000, 20, 6);
  double best = 8.0;
  for (const double d0 : {0.1, 1.0, 10.0, 100.0}) {
    for (const double d1 : {1.0, 10.0, 100.0, 1000.0}) {
      for (const double d2 : {0.3, 1.0, 3.0, 10.0, 30.0}) {
        best = std::min(best, reference_bits(train, validation, {d0, d1, d2}));
      }
    }
  }
  const double bits = markov2_bits_per_byte(std::vector{document(train)}, std::vector{document(validation)});
  EXPECT_NEAR(bits, best, 0.05 * best);
}

TEST(Markov2, NeverFailsOnBytesItHasNotSeen) {
  const double bits = markov2_bits_per_byte(std::vector{document("aaaa")}, std::vector{document("zzzz")});
  EXPECT_TRUE(std::isfinite(bits));
  EXPECT_GT(bits, 8.0);
}

TEST(Markov2, WithoutTrainingTextIsUniform) {
  EXPECT_DOUBLE_EQ(markov2_bits_per_byte({}, std::vector{document("some text")}), 8.0);
  EXPECT_THROW(static_cast<void>(markov2_bits_per_byte({}, {})), Error);
}

TEST(Markov2, StartsEachDocumentWithoutContext) {
  const std::vector<Document> train = {document(order2_text(20'000, 1))};
  const std::string text = order2_text(40, 2);
  const double one = markov2_bits_per_byte(train, std::vector{document(text)});
  const double two = markov2_bits_per_byte(train, std::vector{document(text), document(text)});
  EXPECT_DOUBLE_EQ(one, two);
}

TEST(Gzip9, AgreesWithTheProgram) {
  const TestFolder folder;
  const std::vector<Document> documents = {document(order2_text(100'000, 1)),
                                           document(order2_text(50'000, 2))};
  const auto file = folder.write("text", documents[0].text + documents[1].text);
  std::FILE* pipe = popen(("gzip -9 -c < '" + file.string() + "' | wc -c").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  long bytes = 0;
  EXPECT_EQ(std::fscanf(pipe, "%ld", &bytes), 1);
  ASSERT_EQ(pclose(pipe), 0);
  ASSERT_GT(bytes, 0);
  const double expected = 8.0 * static_cast<double>(bytes) / 150'000.0;
  EXPECT_NEAR(gzip9_bits_per_byte(documents), expected, 0.005 * expected);
}

TEST(Gzip9, CountsHeaderAndTrailer) {
  // Ten bytes of header, two of an empty last block with one literal, eight of trailer: more than the text.
  EXPECT_GE(gzip9_bits_per_byte(std::vector{document("a")}), 8.0 * 20);
  EXPECT_THROW(static_cast<void>(gzip9_bits_per_byte({})), Error);
}

}  // namespace
}  // namespace expedite::train
