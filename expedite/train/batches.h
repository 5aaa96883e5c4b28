// Token windows as micro-batches: which rank computes which sequences of a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/model/step.h"
#include "expedite/train/sampler.h"

namespace expedite::train {

/// One rank's part of a step, and the totals over all ranks.
struct StepBatch {
  std::vector<model::MicroBatch> micro_batches;
  std::int64_t total_tokens = 0;
  std::vector<std::int64_t> micro_batch_tokens;  // of each micro-batch on all ranks

  /// Every token of a window has a target.
  [[nodiscard]] model::StepRunner::Input input() const {
    return {micro_batches, total_tokens, total_tokens, micro_batch_tokens};
  }
};

/// Of every rank's share of a step of `sequences` sequences.
[[nodiscard]] std::int64_t micro_batch_count(std::int64_t sequences, std::int64_t micro_batch_size,
                                             int ranks);

/// Splits windows of `tokens` into equal consecutive shares, one per rank (the first shares one longer where
/// they do not divide), and each share into micro-batches of `micro_batch_size` sequences. Every rank has the
/// same number of micro-batches; some may be empty.
[[nodiscard]] StepBatch distribute(std::span<const std::int32_t> tokens, std::span<const Window> windows,
                                   std::int64_t micro_batch_size, int rank, int ranks);

}  // namespace expedite::train
