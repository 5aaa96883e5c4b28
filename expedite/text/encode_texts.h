// Many texts to tokens at once, on several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "expedite/text/survival.h"
#include "expedite/text/tokenizer.h"

namespace expedite::text {

struct EncodedText {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> token_bytes;  // of the text that each token still says; empty when not asked for
  TextLoss loss;
};

struct EncodeOptions {
  int threads = 1;
  bool with_token_bytes = false;
  /// Called about five times a second with the bytes done so far, by the thread that called encode_texts().
  std::function<void(std::int64_t bytes)> progress = {};
};

/// One result per text, the same for any number of threads. The first error by the order of the texts is
/// thrown.
[[nodiscard]] std::vector<EncodedText> encode_texts(std::span<const std::string_view> texts,
                                                    const Tokenizer& tokenizer, const EncodeOptions& options);

}  // namespace expedite::text
