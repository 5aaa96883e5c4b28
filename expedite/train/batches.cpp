#include "expedite/train/batches.h"

#include <algorithm>

namespace expedite::train {

std::int64_t micro_batch_count(std::int64_t sequences, std::int64_t micro_batch_size, int ranks) {
  const std::int64_t most = (sequences + ranks - 1) / ranks;
  return (most + micro_batch_size - 1) / micro_batch_size;
}

StepBatch distribute(std::span<const std::int32_t> tokens, std::span<const Window> windows,
                     std::int64_t micro_batch_size, int rank, int ranks) {
  const auto count = static_cast<std::int64_t>(windows.size());
  const std::int64_t share = count / ranks;
  const std::int64_t longer = count % ranks;
  const std::int64_t micro_batches = micro_batch_count(count, micro_batch_size, ranks);

  StepBatch step;
  step.micro_batches.resize(static_cast<std::size_t>(micro_batches));
  step.micro_batch_tokens.assign(static_cast<std::size_t>(micro_batches), 0);
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t begin = share * r + std::min<std::int64_t>(r, longer);
    const std::int64_t size = share + (r < longer ? 1 : 0);
    for (std::int64_t i = 0; i < size; ++i) {
      const Window& window = windows[static_cast<std::size_t>(begin + i)];
      const auto micro_batch = static_cast<std::size_t>(i / micro_batch_size);
      step.micro_batch_tokens[micro_batch] += window.length;
      step.total_tokens += window.length;
      if (r == rank) {
        const auto first = static_cast<std::size_t>(window.begin);
        const auto length = static_cast<std::size_t>(window.length);
        step.micro_batches[micro_batch].append(tokens.subspan(first, length),
                                               tokens.subspan(first + 1, length));
      }
    }
  }
  return step;
}

}  // namespace expedite::train
