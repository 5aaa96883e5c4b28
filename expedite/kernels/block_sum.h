// Sums over many items whose bits do not depend on the number of threads: items are cut into blocks by their
// number alone, each block is summed on its own, and the blocks' sums are added in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "expedite/kernels/parallel.h"

namespace expedite::kernels {

/// Items in a block: at least `least`, and more when there would be over 256 blocks, which bounds the memory
/// for their sums.
[[nodiscard]] inline std::int64_t block_items(std::int64_t items, std::int64_t least) {
  constexpr std::int64_t kMostBlocks = 256;
  return std::max(least, (items + kMostBlocks - 1) / kMostBlocks);
}

/// sums[i] += the sum over blocks of what add(begin, end, partial) adds to partial[i], which starts at zero.
template <typename Number, typename Add>
void add_block_sums(std::int64_t items, std::span<Number> sums, const Add& add, std::int64_t least = 64) {
  if (items <= 0) {
    return;
  }
  const std::int64_t block = block_items(items, least);
  const std::int64_t blocks = (items + block - 1) / block;
  const std::size_t width = sums.size();
  std::vector<Number> partials(static_cast<std::size_t>(blocks) * width);
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::span<Number> all(partials);
      add(b * block, std::min(items, (b + 1) * block),
          all.subspan(static_cast<std::size_t>(b) * width, width));
    }
  });
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (std::size_t i = 0; i < width; ++i) {
      sums[i] += partials[static_cast<std::size_t>(b) * width + i];
    }
  }
}

}  // namespace expedite::kernels
