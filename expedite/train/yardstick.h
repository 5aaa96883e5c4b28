// Yardsticks: bits per byte that simple, well-known compressors reach on the validation text.
#pragma once

#include <span>

#include "expedite/train/text_corpus.h"

namespace expedite::train {

/// An order-2 Markov model over bytes: counts from `train`, bits per byte on `validation`.
/// Order k is smoothed towards order k - 1: p_k(c | h) = (n(h c) + d_k p_{k-1}(c | h')) / (n(h) + d_k), down
/// to the uniform distribution (hierarchical Dirichlet smoothing, MacKay & Peto, Natural Language Engineering
/// 1995). Each d_k is the one that codes the training text best when every byte is left out of the counts in
/// turn, so the yardstick is strong and sees nothing of the validation text. A document's first two bytes
/// have the shorter contexts. Throws Error when `validation` is empty; an empty `train` gives 8.
[[nodiscard]] double markov2_bits_per_byte(std::span<const Document> train,
                                           std::span<const Document> validation);

/// The size of `gzip -9` of the documents one after another (zlib, level 9, gzip header and trailer
/// included). Throws Error when `documents` is empty.
[[nodiscard]] double gzip9_bits_per_byte(std::span<const Document> documents);

}  // namespace expedite::train
