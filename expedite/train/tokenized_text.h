// Documents as tokens, encoded by all ranks together, once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "expedite/comm/process_grid.h"
#include "expedite/text/tokenizer.h"
#include "expedite/train/text_corpus.h"

namespace expedite::train {

struct TokenizeOptions {
  std::filesystem::path cache;    // folder; empty: none
  int threads = 1;                // of this rank
  bool with_token_bytes = false;  // needed for bits per byte over a part of the text
};

/// The same on every rank, however many there are. Each rank encodes a share of the documents, unless
/// they lie in the cache; rank 0 tells how far it is where that takes long. Collective over the grid's world.
/// Bytes are encoded by each rank by itself and are not cached.
[[nodiscard]] TokenStream tokenize_together(std::span<const Document> documents,
                                            const text::Tokenizer& tokenizer, const comm::ProcessGrid& grid,
                                            const TokenizeOptions& options);

}  // namespace expedite::train
