// The unigram language model of SentencePiece (Kudo, ACL 2018) as Hugging Face's `Unigram` does it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "expedite/text/model.h"

namespace expedite::text {

struct UnigramOptions {
  bool byte_fallback =
      false;              // an unknown character becomes its bytes, <0x00> to <0xFF>, where all are there
  std::int32_t unk = -1;  // unknown characters one after another are one of this; -1: they are an Error
};

/// `pieces` with their scores, ids in order. Of all ways to write a text the one with the highest sum of
/// scores is taken; a character without a piece of its own scores 10 below the lowest.
[[nodiscard]] std::unique_ptr<Model> make_unigram(const std::vector<std::pair<std::string, double>>& pieces,
                                                  const UnigramOptions& options, const std::string& where);

}  // namespace expedite::text
