#include "expedite/train/sampler.h"

#include <algorithm>

#include "expedite/base/error.h"
#include "expedite/base/random.h"

namespace expedite::train {

TrainSampler::TrainSampler(std::int64_t tokens, std::int64_t seq_length, std::int64_t global_batch_size,
                           std::int64_t seed)
    : tokens_(tokens),
      length_(std::min(seq_length, tokens - 1)),
      global_batch_size_(global_batch_size),
      seed_(static_cast<std::uint64_t>(seed)) {
  require(tokens >= 2, "the training text has {} tokens; at least 2 are needed (see data.path)", tokens);
  require(seq_length >= 1, "data.seq_length = {}: expected at least 1", seq_length);
  require(global_batch_size >= 1, "train.global_batch_size = {}: expected at least 1", global_batch_size);
  const std::int64_t fit = (tokens - 1) / length_;
  windows_ = std::max<std::int64_t>(1, fit - 1);
}

Window TrainSampler::sequence(std::int64_t step, std::int64_t index) const {
  require(step >= 0 && index >= 0 && index < global_batch_size_,
          "sequence {} of step {} is outside a global batch of {}", index, step, global_batch_size_);
  const std::int64_t drawn = step * global_batch_size_ + index;
  const auto epoch = static_cast<std::uint64_t>(drawn / windows_);
  const auto place = static_cast<std::uint64_t>(drawn % windows_);
  const Philox offsets(seed_, stream_of("epoch offset"));
  const Philox orders(seed_, stream_of("epoch order"));
  const auto slack = static_cast<double>(tokens_ - 1 - windows_ * length_ + 1);
  const auto offset = static_cast<std::int64_t>(offsets.uniform(epoch) * slack);
  const auto window = static_cast<std::int64_t>(
      permuted_index(place, static_cast<std::uint64_t>(windows_), orders.bits(epoch)));
  return {.begin = offset + window * length_, .length = length_};
}

double TrainSampler::epochs_after(std::int64_t step) const {
  return static_cast<double>((step + 1) * global_batch_size_) / static_cast<double>(windows_);
}

std::vector<Window> validation_windows(std::int64_t tokens, std::int64_t seq_length, std::int64_t limit) {
  require(seq_length >= 1, "data.seq_length = {}: expected at least 1", seq_length);
  const std::int64_t targets = std::max<std::int64_t>(tokens - 1, 0);
  const std::int64_t all = (targets + seq_length - 1) / seq_length;
  const std::int64_t count = limit > 0 ? std::min(limit, all) : all;
  std::vector<Window> windows;
  windows.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = i * all / count * seq_length;
    windows.push_back({.begin = begin, .length = std::min(seq_length, targets - begin)});
  }
  return windows;
}

}  // namespace expedite::train
