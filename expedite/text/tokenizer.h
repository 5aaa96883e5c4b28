// Tokenizers: text to token ids, knowing which bytes of the text each token stands for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace expedite::text {

/// What one thread encodes with: memory that is used again and again, and words it has met.
class Encoder {
 public:
  virtual ~Encoder() = default;
  Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  /// Appends the ids of `text` to `tokens`; they depend on the text alone. When `token_bytes` is given,
  /// appends for each id the bytes of `text` that it stands for, in order; they add up to text.size(), unless
  /// a text gives no tokens at all.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& tokens,
                      std::vector<std::uint32_t>* token_bytes) = 0;
};

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
  /// The tokenizer outlives it. May be called from several threads.
  [[nodiscard]] virtual std::unique_ptr<Encoder> encoder() const = 0;
  /// The bytes that a token adds to a text: none for the separator and for what stands for unknown
  /// characters. Throws Error on an id outside the vocabulary.
  [[nodiscard]] virtual std::string_view says(std::int32_t token) const = 0;
  /// Whether a space that a text would begin with is not of the text: the encoder puts one there.
  [[nodiscard]] virtual bool adds_space() const { return false; }
  /// A hash of all that ids depend on, 32 hexadecimal digits.
  [[nodiscard]] virtual std::string fingerprint() const = 0;

  /// With an encoder of its own.
  void encode(std::string_view text, std::vector<std::int32_t>& tokens,
              std::vector<std::uint32_t>* token_bytes) const;
  /// What the tokens say.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens) const;
};

/// Bytes are ids 0..255 and 256 is the separator: vocab_size() is 257. Lossless.
[[nodiscard]] std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// A SentencePiece model (Kudo & Richardson, EMNLP 2018). The separator is its <s>, else its </s>; a model
/// with neither is an Error. SentencePiece normalises text as the model says: often runs of white space and
/// line ends become one space.
[[nodiscard]] std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& model_path);

/// A Hugging Face tokenizer.json: docs/tokenizers.md says what is read. Ids are those of
/// tokenizers' encode() without special tokens added. The separator is `bos_token` of the
/// tokenizer_config.json beside it, else the `bos_token_id` of config.json, else <|endoftext|>, else
/// `eos_token`; one of them must be there.
[[nodiscard]] std::unique_ptr<Tokenizer> make_hugging_face_tokenizer(const std::filesystem::path& json);

/// "bytes"; a tokenizer.json; a SentencePiece .model; or a folder that holds one of them, the tokenizer.json
/// first. Throws Error saying what is legal.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path);

}  // namespace expedite::text
