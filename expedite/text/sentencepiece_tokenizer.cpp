#include <sentencepiece_processor.h>

#include <algorithm>

#include "expedite/base/error.h"
#include "expedite/base/read_text.h"
#include "expedite/text/fingerprint.h"
#include "expedite/text/tokenizer.h"

namespace expedite::text {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // what SentencePiece writes for a space

void check(const sentencepiece::util::Status& status, const std::string& path) {
  require(status.ok(), "{}: SentencePiece failed: {}", path, status.ToString());
}

class SentencePieceEncoder final : public Encoder {
 public:
  SentencePieceEncoder(const sentencepiece::SentencePieceProcessor& processor, const std::string& path)
      : processor_(processor), path_(path) {}

  void encode(std::string_view text, std::vector<std::int32_t>& tokens,
              std::vector<std::uint32_t>* token_bytes) override {
    if (token_bytes == nullptr) {
      check(processor_.Encode(text, &ids_), path_);
      tokens.insert(tokens.end(), ids_.begin(), ids_.end());
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

 private:
  const sentencepiece::SentencePieceProcessor& processor_;
  const std::string& path_;
  std::vector<int> ids_;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) : path_(path) {
    const std::string model = read_text(path);
    const auto status = processor_.LoadFromSerializedProto(model);
    require(status.ok(), "{}: cannot be read as a SentencePiece model: {}", path, status.ToString());
    fingerprint_ = fingerprint_of(model);
    separator_ = processor_.bos_id() >= 0 ? processor_.bos_id() : processor_.eos_id();
    require(separator_ >= 0, "{}: the model has neither <s> nor </s>, one of which must separate documents",
            path);
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      says_.push_back(said_by(id));
    }
    adds_space_ = find_added_space();
  }

  [[nodiscard]] std::int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  [[nodiscard]] std::int32_t separator() const override { return separator_; }
  [[nodiscard]] bool adds_space() const override { return adds_space_; }
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::unique_ptr<Encoder> encoder() const override {
    return std::make_unique<SentencePieceEncoder>(processor_, path_);
  }

  [[nodiscard]] std::string_view says(std::int32_t token) const override {
    require(token >= 0 && token < vocab_size(), "token {} is outside the vocabulary of {} pieces of {}",
            token, vocab_size(), path_);
    return says_[token];
  }

 private:
  [[nodiscard]] std::string said_by(int id) const {
    if (processor_.IsUnknown(id) || processor_.IsControl(id) || processor_.IsUnused(id)) {
      return {};
    }
    std::string piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id)) {
      constexpr std::size_t kDigits = 3;  // <0xE2>
      return {static_cast<char>(std::stoi(piece.substr(kDigits, 2), nullptr, 16))};
    }
    for (std::size_t at = piece.find(kSpace); at != std::string::npos; at = piece.find(kSpace, at)) {
      piece.replace(at, kSpace.size(), " ");
    }
    return piece;
  }

  /// Asked of the model itself: whether a text's first piece is written without its space.
  [[nodiscard]] bool find_added_space() const {
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (says_[id].size() > 1 && says_[id].starts_with(' ')) {
        std::string text;
        check(processor_.Decode(std::vector<int>{id}, &text), path_);
        return !text.starts_with(' ');
      }
    }
    return false;
  }

  std::string path_;
  std::string fingerprint_;
  sentencepiece::SentencePieceProcessor processor_;
  std::int32_t separator_ = -1;
  std::vector<std::string> says_;
  bool adds_space_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& model_path) {
  return std::make_unique<SentencePieceTokenizer>(model_path);
}

}  // namespace expedite::text
