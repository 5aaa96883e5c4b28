#include "expedite/train/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <filesystem>

#include "expedite/base/error.h"

namespace expedite::train {
namespace {

constexpr std::int32_t kByteSeparator = 256;
constexpr std::int64_t kByteVocabulary = 257;

class ByteTokenizer final : public Tokenizer {
 public:
  [[nodiscard]] std::int64_t vocab_size() const override { return kByteVocabulary; }
  [[nodiscard]] std::int32_t separator() const override { return kByteSeparator; }

  void encode(std::string_view text, std::vector<std::int32_t>& tokens,
              std::vector<std::uint32_t>* token_bytes) const override {
    tokens.reserve(tokens.size() + text.size());
    for (const char c : text) {
      tokens.push_back(static_cast<unsigned char>(c));
    }
    if (token_bytes != nullptr) {
      token_bytes->insert(token_bytes->end(), text.size(), 1);
    }
  }

  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    for (const std::int32_t token : tokens) {
      require(token >= 0 && token < kByteVocabulary, "token {} is outside the vocabulary of {} bytes", token,
              kByteVocabulary);
      if (token != kByteSeparator) {
        text.push_back(static_cast<char>(token));
      }
    }
    return text;
  }
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& model_path) : path_(model_path) {
    std::error_code error;
    require(std::filesystem::is_regular_file(model_path, error),
            "data.tokenizer = {}: no such file; expected bytes or the path of a SentencePiece .model",
            model_path);
    const auto status = processor_.Load(model_path);
    require(status.ok(), "{}: cannot be read as a SentencePiece model: {}", model_path, status.ToString());
    separator_ = processor_.bos_id() >= 0 ? processor_.bos_id() : processor_.eos_id();
    require(separator_ >= 0, "{}: the model has neither <s> nor </s>, one of which must separate documents",
            model_path);
  }

  [[nodiscard]] std::int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  [[nodiscard]] std::int32_t separator() const override { return separator_; }

  void encode(std::string_view text, std::vector<std::int32_t>& tokens,
              std::vector<std::uint32_t>* token_bytes) const override {
    if (token_bytes == nullptr) {
      std::vector<int> ids;
      check(processor_.Encode(text, &ids));
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      return;
    }
    const auto pieces = processor_.EncodeAsImmutableProto(text);
    const std::size_t count = pieces.pieces_size();
    std::uint32_t end = 0;  // in the text, of the pieces so far
    for (std::size_t i = 0; i < count; ++i) {
      // What normalising dropped between two pieces, or after the last, belongs to the piece before it.
      const auto piece = pieces.pieces(static_cast<int>(i));
      const auto next = i + 1 < count ? pieces.pieces(static_cast<int>(i + 1)).begin()
                                      : static_cast<std::uint32_t>(text.size());
      const std::uint32_t upto = std::max(end, next);
      tokens.push_back(static_cast<std::int32_t>(piece.id()));
      token_bytes->push_back(upto - end);
      end = upto;
    }
  }

  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens) const override {
    std::vector<int> ids;
    for (const std::int32_t token : tokens) {
      require(token >= 0 && token < vocab_size(), "token {} is outside the vocabulary of {} pieces of {}",
              token, vocab_size(), path_);
      if (token != separator_) {
        ids.push_back(token);
      }
    }
    std::string text;
    check(processor_.Decode(ids, &text));
    return text;
  }

 private:
  void check(const sentencepiece::util::Status& status) const {
    require(status.ok(), "{}: SentencePiece failed: {}", path_, status.ToString());
  }

  std::string path_;
  sentencepiece::SentencePieceProcessor processor_;
  std::int32_t separator_ = -1;
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& model_path) {
  return std::make_unique<SentencePieceTokenizer>(model_path);
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path) {
  return name_or_path == "bytes" ? make_byte_tokenizer() : make_sentencepiece_tokenizer(name_or_path);
}

}  // namespace expedite::train
