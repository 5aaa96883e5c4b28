// Tokenizers: text to token ids, knowing how many bytes of the text each token stands for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace expedite::train {

/// Ids are 0 .. vocab_size() - 1. separator() is the id that comes before each document and stands for no
/// bytes.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  [[nodiscard]] virtual std::int32_t separator() const = 0;
  /// Appends the ids of `text` to `tokens`. When `token_bytes` is given, appends for each id the bytes of
  /// `text` that it stands for; they add up to text.size(), unless a text gives no tokens at all.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& tokens,
                      std::vector<std::uint32_t>* token_bytes) const = 0;
  /// Separators decode to nothing. Throws Error on an id outside the vocabulary.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
};

/// Bytes are ids 0..255 and 256 is the separator: vocab_size() is 257. Lossless.
[[nodiscard]] std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// A SentencePiece model (Kudo & Richardson, EMNLP 2018). The separator is its <s>, else its </s>; a model
/// with neither is an Error. SentencePiece normalises text as the model says (often runs of white space and
/// line ends become one space), so bits per byte of such a model counts the bytes of the original text but
/// not what normalising lost.
[[nodiscard]] std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& model_path);

/// "bytes", or the path of a SentencePiece .model.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path);

}  // namespace expedite::train
