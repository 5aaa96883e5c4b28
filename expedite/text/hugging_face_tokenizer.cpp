// Hugging Face's pipeline: added tokens, normalizer, pre-tokenizer, model.
#include <algorithm>

#include "expedite/base/error.h"
#include "expedite/text/hugging_face_json.h"
#include "expedite/text/tokenizer.h"
#include "expedite/text/utf8.h"

namespace expedite::text {
namespace {

/// Token ids, and the bytes of the original that each stands for: up to where it ends, from where the one
/// before ended.
class TokenWriter {
 public:
  TokenWriter(std::vector<std::int32_t>& tokens, std::vector<std::uint32_t>* bytes)
      : tokens_(tokens), bytes_(bytes), first_(tokens.size()) {}

  [[nodiscard]] std::vector<std::int32_t>& tokens() { return tokens_; }
  [[nodiscard]] bool aligned() const { return bytes_ != nullptr; }

  void add(std::int32_t token, std::size_t end) {
    tokens_.push_back(token);
    note_end(end);
  }
  /// For a token that is in tokens() already.
  void note_end(std::size_t end) {
    if (bytes_ != nullptr) {
      const std::size_t upto = std::max(end, end_);
      bytes_->push_back(static_cast<std::uint32_t>(upto - end_));
      end_ = upto;
    }
  }
  /// What no token has ended with belongs to the last one.
  void finish(std::size_t text_size) {
    if (bytes_ != nullptr && tokens_.size() > first_) {
      bytes_->back() += static_cast<std::uint32_t>(text_size - end_);
    }
  }

 private:
  std::vector<std::int32_t>& tokens_;
  std::vector<std::uint32_t>* bytes_;
  std::size_t first_;
  std::size_t end_ = 0;
};

AlignedText part_of(const AlignedText& text, std::size_t begin, std::size_t end) {
  AlignedText part{.bytes = text.bytes.substr(begin, end - begin), .origin = {}};
  if (text.aligned()) {
    part.origin.assign(text.origin.begin() + static_cast<std::ptrdiff_t>(begin),
                       text.origin.begin() + static_cast<std::ptrdiff_t>(end) + 1);
  }
  return part;
}

class HuggingFaceEncoder final : public Encoder {
 public:
  explicit HuggingFaceEncoder(const HuggingFaceParts& parts)
      : parts_(parts), worker_(parts.model->worker()) {}

  void encode(std::string_view text, std::vector<std::int32_t>& tokens,
              std::vector<std::uint32_t>* token_bytes) override {
    constexpr std::size_t kMost = 0x7FFFFFFF;
    require(text.size() <= kMost, "a text of {} bytes is too long to encode as one: cut it below 2 GiB",
            text.size());
    TokenWriter out(tokens, token_bytes);
    const bool valid = find_invalid(text) == text.size();
    const AlignedText whole = valid ? as_original(text, out.aligned()) : replace_invalid(text, out.aligned());
    for_each_section(whole, parts_.raw_added, out, [&](AlignedText section, bool begins_text) {
      encode_section(parts_.normalizer->normalize(std::move(section)), begins_text, out);
    });
    out.finish(text.size());
  }

 private:
  /// Writes the added tokens of `text`, and gives what lies between them to `encode`.
  template <typename Encode>
  static void for_each_section(const AlignedText& text, const AddedTokenFinder& added, TokenWriter& out,
                               const Encode& encode) {
    std::size_t at = 0;
    while (true) {
      const std::optional<FoundToken> found = added.find(text.bytes, at);
      const std::size_t end = found ? found->begin : text.bytes.size();
      if (end > at) {
        encode(part_of(text, at, end), at == 0);
      }
      if (!found) {
        return;
      }
      out.add(found->id, text.aligned() ? text.origin[found->end] : 0);
      at = found->end;
    }
  }

  void encode_section(const AlignedText& normalized, bool begins_text, TokenWriter& out) {
    for_each_section(normalized, parts_.normalized_added, out, [&](AlignedText section, bool begins_section) {
      pieces_.text = std::move(section);
      pieces_.begins_text = begins_text && begins_section;
      pieces_.spans = {{0, static_cast<std::uint32_t>(pieces_.text.bytes.size())}};
      parts_.pre_tokenizer.splitter->split(pieces_);
      constexpr std::size_t kAhead = 6;
      const std::vector<Span>& spans = pieces_.spans;
      for (std::size_t i = 0; i < spans.size(); ++i) {
        if (i + kAhead < spans.size()) {
          worker_->expect(pieces_.at(spans[i + kAhead]));
        }
        encode_piece(spans[i], out);
      }
    });
  }

  void encode_piece(const Span& span, TokenWriter& out) {
    if (!out.aligned()) {
      worker_->encode(pieces_.at(span), {out.tokens()});
      return;
    }
    lengths_.clear();
    worker_->encode(pieces_.at(span), {out.tokens(), &lengths_});
    std::size_t end = span.begin;
    for (const std::uint32_t length : lengths_) {
      end += length;
      out.note_end(pieces_.text.origin[end]);
    }
  }

  const HuggingFaceParts& parts_;
  std::unique_ptr<ModelWorker> worker_;
  Pieces pieces_;
  std::vector<std::uint32_t> lengths_;
};

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  explicit HuggingFaceTokenizer(HuggingFaceParts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] std::int64_t vocab_size() const override {
    return static_cast<std::int64_t>(parts_.texts.says.size());
  }
  [[nodiscard]] std::int32_t separator() const override { return parts_.separator; }
  [[nodiscard]] bool adds_space() const override { return parts_.texts.adds_space; }
  [[nodiscard]] std::string fingerprint() const override { return parts_.fingerprint; }
  [[nodiscard]] std::unique_ptr<Encoder> encoder() const override {
    return std::make_unique<HuggingFaceEncoder>(parts_);
  }

  [[nodiscard]] std::string_view says(std::int32_t token) const override {
    require(token >= 0 && token < vocab_size(), "token {} is outside the vocabulary of {} tokens of {}",
            token, vocab_size(), parts_.where);
    return parts_.texts.says[token];
  }

 private:
  HuggingFaceParts parts_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_hugging_face_tokenizer(const std::filesystem::path& json) {
  return std::make_unique<HuggingFaceTokenizer>(read_hugging_face_tokenizer(json));
}

}  // namespace expedite::text
