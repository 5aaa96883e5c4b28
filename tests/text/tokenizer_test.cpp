#include "expedite/text/tokenizer.h"

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include <numeric>

#include "expedite/base/error.h"
#include "expedite/base/random.h"
#include "tests/test_folder.h"

namespace expedite::text {
namespace {



struct Encoded {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> bytes;
};

Encoded encode(const Tokenizer& tokenizer, std::string_view text) {
  Encoded encoded;
  tokenizer.encode(text, encoded.tokens, &encoded.bytes);
  return encoded;
}

std::int64_t sum(const std::vector<std::uint32_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

/// Trains a small model on made-up words, with `flags` added to spm_train's.
std::string train_model(const TestFolder& folder, const std::string& flags) {
  const Philox random(1, 0);
  std::string text;
  std::uint64_t draw = 0;
  for (int line = 0; line < 300; ++line) {
    for (int word = 0; word < 8; ++word) {
      for (int syllable = 0; syllable < 3; ++syllable) {
        text += "bcdfg"[random.bits(draw++) % 5];
        text += "aeiou"[random.bits(draw++) % 5];
      }
      text += ' ';
    }
    text += '\n';
  }
  const auto input = folder.write("input.txt", text);
  const std::string prefix = folder.path() / "model";
  const auto status =
      sentencepiece::SentencePieceTrainer::Train("--input=" + input.string() + " --model_prefix=" + prefix +
                                                 " --minloglevel=2 --num_threads=1 " + flags);
  if (!status.ok()) {
    throw std::runtime_error(status.ToString());
  }
  return prefix + ".model";
}

TEST(ByteTokenizer, IsLossless) {
  const auto tokenizer = make_tokenizer("bytes");
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->separator(), 256);
  std::string text;
  for (int c = 0; c < 256; ++c) {
    text += static_cast<char>(c);
  }
  const auto [tokens, bytes] = encode(*tokenizer, text);
  EXPECT_EQ(tokens.size(), 256U);
  EXPECT_EQ(tokens[200], 200);
  EXPECT_EQ(sum(bytes), 256);
  EXPECT_EQ(tokenizer->decode(tokens), text);
  EXPECT_TRUE(encode(*tokenizer, "").tokens.empty());
}

TEST(ByteTokenizer, DecodesSeparatorsToNothingAndRefusesOtherIds) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{256, 97, 256, 98}), "ab");
  EXPECT_THROW(static_cast<void>(tokenizer->decode(std::vector<std::int32_t>{257})), Error);
  EXPECT_THROW(static_cast<void>(tokenizer->decode(std::vector<std::int32_t>{-1})), Error);
}

TEST(SentencePieceTokenizer, EncodesPiecesAndKnowsTheirBytes) {
  const TestFolder folder;
  const auto tokenizer = make_tokenizer(train_model(folder, "--vocab_size=80 --model_type=bpe"));
  EXPECT_EQ(tokenizer->vocab_size(), 80);
  EXPECT_EQ(tokenizer->separator(), 1);  // <s>
  for (const std::string text : {"baceda fogubi", "  baceda   fogubi\n\ncuda  ", "b", "bacé ≠ z",
                                 "ba\xff\x80"
                                 "ce"}) {
    const auto [tokens, bytes] = encode(*tokenizer, text);
    ASSERT_EQ(tokens.size(), bytes.size());
    EXPECT_LE(tokens.size(), text.size() + 2);
    EXPECT_EQ(sum(bytes), static_cast<std::int64_t>(text.size())) << text;
    std::vector<std::int32_t> without_bytes;
    tokenizer->encode(text, without_bytes, nullptr);
    EXPECT_EQ(without_bytes, tokens);
  }
  const auto tokens = encode(*tokenizer, "baceda fogubi").tokens;
  EXPECT_LT(tokens.size(), 13U);
  EXPECT_EQ(tokenizer->decode(tokens), "baceda fogubi");
}

TEST(SentencePieceTokenizer, CountsBytesOfByteFallbackPieces) {
  const TestFolder folder;
  const auto tokenizer =
      make_tokenizer(train_model(folder, "--vocab_size=340 --model_type=bpe --byte_fallback=true"));
  const std::string text = "bacé ≠ z";
  const auto [tokens, bytes] = encode(*tokenizer, text);
  EXPECT_EQ(sum(bytes), static_cast<std::int64_t>(text.size()));
  EXPECT_EQ(tokenizer->decode(tokens), text);
}

TEST(SentencePieceTokenizer, SeparatesWithTheEndTokenWhereThereIsNoBegin) {
  const TestFolder folder;
  EXPECT_EQ(make_tokenizer(train_model(folder, "--vocab_size=80 --bos_id=-1 --eos_id=1"))->separator(), 1);
  EXPECT_THROW(
      static_cast<void>(make_tokenizer(train_model(folder, "--vocab_size=80 --bos_id=-1 --eos_id=-1"))),
      Error);
}

TEST(SentencePieceTokenizer, RefusesIdsOutsideTheVocabulary) {
  const TestFolder folder;
  const auto tokenizer = make_tokenizer(train_model(folder, "--vocab_size=80"));
  EXPECT_THROW(static_cast<void>(tokenizer->decode(std::vector<std::int32_t>{80})), Error);
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{1}), "");
}

TEST(SentencePieceTokenizer, NamesAFileThatIsNoModel) {
  const TestFolder folder;
  const auto file = folder.write("junk.model", "this is not a model").string();
  for (const std::string& path : {file, folder.path().string(), std::string("absent.model")}) {
    try {
      static_cast<void>(make_tokenizer(path));
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace expedite::text
