#include "expedite/text/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/edits.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <vector>

#include "expedite/base/config_fields.h"
#include "expedite/base/error.h"
#include "expedite/text/char_set.h"
#include "expedite/text/json_fields.h"
#include "expedite/text/utf8.h"

namespace expedite::text {
namespace {

using nlohmann::json;

class NoChange final : public Normalizer {
 public:
  [[nodiscard]] AlignedText normalize(AlignedText text) const override { return text; }
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  [[nodiscard]] AlignedText normalize(AlignedText text) const override {
    for (const auto& part : parts_) {
      text = part->normalize(std::move(text));
    }
    return text;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

/// NFC and its like.
class Unicode final : public Normalizer {
 public:
  Unicode(const icu::Normalizer2* form, char32_t first_changed)
      : form_(form), first_changed_(first_changed) {}

  [[nodiscard]] AlignedText normalize(AlignedText text) const override {
    if (is_plain(text.bytes)) {
      return text;
    }
    UErrorCode status = U_ZERO_ERROR;
    if (form_->isNormalizedUTF8(text.bytes, status) && U_SUCCESS(status)) {
      return text;
    }
    status = U_ZERO_ERROR;
    std::string changed;
    icu::StringByteSink<std::string> sink(&changed, static_cast<int32_t>(text.bytes.size()));
    icu::Edits edits;
    form_->normalizeUTF8(0, text.bytes, sink, text.aligned() ? &edits : nullptr, status);
    require(U_SUCCESS(status), "ICU cannot normalise a text of {} bytes: {}", text.bytes.size(),
            u_errorName(status));
    if (!text.aligned()) {
      return {.bytes = std::move(changed), .origin = {}};
    }
    Rewriter writer(text);
    for (auto edit = edits.getFineIterator(); edit.next(status);) {
      const auto end = static_cast<std::size_t>(edit.sourceIndex() + edit.oldLength());
      if (edit.hasChange()) {
        writer.replace_until(end,
                             std::string_view(changed).substr(edit.destinationIndex(), edit.newLength()));
      } else {
        writer.copy_until(end);
      }
    }
    return std::move(writer).take();
  }

 private:
  /// Whether every character is below the first that this form changes.
  [[nodiscard]] bool is_plain(std::string_view text) const {
    const auto limit = static_cast<unsigned char>(first_changed_ < 0x100 ? 0x80 : 0xCC);  // U+0300 is CC 80
    return std::ranges::all_of(text, [limit](char c) { return static_cast<unsigned char>(c) < limit; });
  }

  const icu::Normalizer2* form_;
  char32_t first_changed_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  [[nodiscard]] AlignedText normalize(AlignedText text) const override {
    std::optional<Match> match = pattern_->find(text.bytes, 0);
    if (!match) {
      return text;
    }
    Rewriter writer(text);
    for (; match; match = pattern_->find(text.bytes, match->end)) {
      writer.copy_until(match->begin);
      writer.replace_until(match->end, content_);
    }
    return std::move(writer).take();
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string content) : content_(std::move(content)) {}
  [[nodiscard]] AlignedText normalize(AlignedText text) const override {
    if (text.bytes.empty()) {
      return text;
    }
    Rewriter writer(text);
    writer.replace_until(0, content_);
    return std::move(writer).take();
  }

 private:
  std::string content_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  [[nodiscard]] AlignedText normalize(AlignedText text) const override {
    const std::string_view bytes = text.bytes;
    std::size_t begin = 0;
    while (left_ && begin < bytes.size() &&
           u_isUWhiteSpace(static_cast<UChar32>(character_at(&bytes[begin])))) {
      begin += character_length(bytes[begin]);
    }
    std::size_t end = bytes.size();
    while (right_ && end > begin) {
      std::size_t last = end - 1;
      while (continues_character(bytes[last])) {
        --last;
      }
      if (!u_isUWhiteSpace(static_cast<UChar32>(character_at(&bytes[last])))) {
        break;
      }
      end = last;
    }
    Rewriter writer(text);
    writer.replace_until(begin, "");
    writer.copy_until(end);
    writer.replace_until(bytes.size(), "");
    return std::move(writer).take();
  }

 private:
  bool left_;
  bool right_;
};

/// Character by character.
class EachCharacter final : public Normalizer {
 public:
  using Change = void (*)(char32_t character, std::string& out);
  explicit EachCharacter(Change change) : change_(change) {}
  [[nodiscard]] AlignedText normalize(AlignedText text) const override {
    Rewriter writer(text);
    std::string changed;
    for (std::size_t at = 0; at < text.bytes.size();) {
      const std::size_t end = at + character_length(text.bytes[at]);
      changed.clear();
      change_(character_at(&text.bytes[at]), changed);
      if (changed == std::string_view(text.bytes).substr(at, end - at)) {
        writer.copy_until(end);
      } else {
        writer.replace_until(end, changed);
      }
      at = end;
    }
    return std::move(writer).take();
  }

 private:
  Change change_;
};

/// Each character for itself, as Hugging Face does: what a word's end makes of a sigma is not looked at.
void lower(char32_t character, std::string& out) {
  constexpr char32_t kDottedI = 0x130;  // the only one that becomes two
  if (character == kDottedI) {
    out += "i\xCC\x87";
  } else {
    append_character(out, static_cast<char32_t>(u_tolower(static_cast<UChar32>(character))));
  }
}

void strip_mark(char32_t character, std::string& out) {
  if (((U_GET_GC_MASK(static_cast<UChar32>(character))) & U_GC_M_MASK) == 0) {
    append_character(out, character);
  }
}

std::unique_ptr<Normalizer> make_unicode(const std::string& type) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* form = type == "NFC"    ? icu::Normalizer2::getNFCInstance(status)
                                 : type == "NFD"  ? icu::Normalizer2::getNFDInstance(status)
                                 : type == "NFKC" ? icu::Normalizer2::getNFKCInstance(status)
                                                  : icu::Normalizer2::getNFKDInstance(status);
  require(U_SUCCESS(status), "ICU has no data for {}: {}", type, u_errorName(status));
  constexpr char32_t kFirstCombining = 0x300;
  constexpr char32_t kFirstDecomposed = 0xA0;
  return std::make_unique<Unicode>(form, type == "NFC" ? kFirstCombining : kFirstDecomposed);
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const json& value, const std::string& where) {
  if (value.is_null()) {
    return std::make_unique<NoChange>();
  }
  const ConfigFields fields(value, where);
  const std::string type = fields.text("type", "");
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> parts;
    for (const auto& [name, part] : parts_of(fields, "normalizers")) {
      parts.push_back(make_normalizer(part, name));
    }
    return std::make_unique<NormalizerSequence>(std::move(parts));
  }
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    return make_unicode(type);
  }
  if (type == "Replace") {
    return std::make_unique<Replace>(pattern_of(fields), fields.text("content", ""));
  }
  if (type == "Prepend") {
    return std::make_unique<Prepend>(fields.text("prepend", ""));
  }
  if (type == "Strip") {
    return std::make_unique<Strip>(fields.boolean("strip_left", true), fields.boolean("strip_right", true));
  }
  if (type == "Lowercase") {
    return std::make_unique<EachCharacter>(lower);
  }
  if (type == "StripAccents") {
    return std::make_unique<EachCharacter>(strip_mark);
  }
  fail(
      "{}: the type {} is not read; normalizers that are: NFC, NFD, NFKC, NFKD, Replace, Prepend, Lowercase, "
      "Strip, StripAccents and Sequence{}",
      where, excerpt(value.value("type", json())),
      type == "Precompiled" ? ". A SentencePiece tokenizer.model beside it says the same and is read" : "");
}

}  // namespace expedite::text
