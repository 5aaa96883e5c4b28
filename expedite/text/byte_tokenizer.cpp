#include <array>

#include "expedite/base/error.h"
#include "expedite/text/tokenizer.h"

namespace expedite::text {
namespace {

constexpr std::int32_t kSeparator = 256;
constexpr std::int64_t kVocabulary = 257;

class ByteEncoder final : public Encoder {
 public:
  void encode(std::string_view text, std::vector<std::int32_t>& tokens,
              std::vector<std::uint32_t>* token_bytes) override {
    tokens.reserve(tokens.size() + text.size());
    for (const char c : text) {
      tokens.push_back(static_cast<unsigned char>(c));
    }
    if (token_bytes != nullptr) {
      token_bytes->insert(token_bytes->end(), text.size(), 1);
    }
  }
};

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      bytes_[i] = static_cast<char>(i);
    }
  }

  [[nodiscard]] std::int64_t vocab_size() const override { return kVocabulary; }
  [[nodiscard]] std::int32_t separator() const override { return kSeparator; }
  [[nodiscard]] std::unique_ptr<Encoder> encoder() const override { return std::make_unique<ByteEncoder>(); }
  [[nodiscard]] std::string fingerprint() const override { return std::string(32, '0'); }

  [[nodiscard]] std::string_view says(std::int32_t token) const override {
    require(token >= 0 && token < kVocabulary, "token {} is outside the vocabulary of {} bytes", token,
            kVocabulary);
    return token == kSeparator ? std::string_view() : std::string_view(&bytes_[token], 1);
  }

 private:
  std::array<char, 256> bytes_ = {};
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace expedite::text
