#include "expedite/schedule/ep_plan.h"

#include <algorithm>

#include "expedite/base/error.h"

namespace expedite::schedule {

std::string_view name_of(ChunkPipeline pipeline) {
  switch (pipeline) {
    case ChunkPipeline::continuous:
      return "continuous";
    case ChunkPipeline::pairwise:
      return "pairwise";
    case ChunkPipeline::none:
      return "none";
  }
  return "?";
}

std::string_view name_of(MoeRecompute recompute) {
  switch (recompute) {
    case MoeRecompute::none:
      return "none";
    case MoeRecompute::activation:
      return "activation";
    case MoeRecompute::full:
      return "full";
  }
  return "?";
}

void EpPlan::taper() {
  chunking.tapered = pipeline == ChunkPipeline::continuous && recompute == MoeRecompute::none;
}

int EpPlan::unpacked_early() const {
  switch (pipeline) {
    case ChunkPipeline::continuous:
      return std::max(0, chunking.chunks - std::max(1, window - 1));
    case ChunkPipeline::pairwise:
      return (chunking.chunks - 1) / 2 * 2;
    case ChunkPipeline::none:
      break;
  }
  return chunking.chunks;
}

std::vector<std::int64_t> chunk_bounds(std::int64_t tokens, const Chunking& chunking) {
  require(chunking.chunks >= 1 && chunking.chunk_size >= 0 && tokens >= 0,
          "{} tokens cannot be cut into {} chunks of {}", tokens, chunking.chunks, chunking.chunk_size);
  const std::int64_t chunks = chunking.chunks;
  std::vector<std::int64_t> bounds(static_cast<std::size_t>(chunks) + 1, 0);
  for (std::int64_t c = 1; c <= chunks; ++c) {
    std::int64_t bound = 0;
    if (chunking.tapered && chunks >= 3 && chunking.chunk_size == 0) {
      // In halves of an inner chunk: 1, 3, 5, ..., 2N - 3, 2N - 2. Divided first, so that nothing overflows.
      const std::int64_t halves = 2 * chunks - 2;
      const std::int64_t at = std::min(2 * c - 1, halves);
      bound = tokens / halves * at + tokens % halves * at / halves;
    } else {
      const std::int64_t size =
          chunking.chunk_size > 0 ? chunking.chunk_size : (tokens + chunks - 1) / chunks;
      bound = size > 0 && c > tokens / size ? tokens : std::min(c * size, tokens);
    }
    bounds[static_cast<std::size_t>(c)] = bound;
  }
  require(bounds.back() == tokens, "{} tokens do not fit {} chunks of {}", tokens, chunks,
          chunking.chunk_size);
  return bounds;
}

}  // namespace expedite::schedule
