// Which tokens form which sequence: a pure function of seed, step and place in the global batch, never of the
// ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace expedite::train {

/// Inputs are tokens [begin, begin + length), targets are [begin + 1, begin + length + 1).
struct Window {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  bool operator==(const Window&) const = default;
};

/// Training sequences. In each epoch the text is cut at a random offset into windows whose targets do not
/// overlap, in a random order; every epoch has the same number of windows, one less than would fit (when more
/// than one does), so that the offset is free to move by a whole window and every token becomes a target in
/// nearly every epoch. All windows have seq_length targets: what is left over at both ends is left out of
/// that epoch. Only a text of fewer than seq_length + 1 tokens gives a shorter window, the whole text.
class TrainSampler {
 public:
  /// Throws Error unless tokens >= 2, seq_length >= 1 and global_batch_size >= 1.
  TrainSampler(std::int64_t tokens, std::int64_t seq_length, std::int64_t global_batch_size,
               std::int64_t seed);

  /// Sequence `index` (0 <= index < global_batch_size) of step `step` (from 0).
  [[nodiscard]] Window sequence(std::int64_t step, std::int64_t index) const;
  [[nodiscard]] std::int64_t windows_per_epoch() const { return windows_; }
  /// Epochs begun by the end of step `step`, as a fraction.
  [[nodiscard]] double epochs_after(std::int64_t step) const;

 private:
  std::int64_t tokens_;
  std::int64_t length_;  // of every window
  std::int64_t windows_;
  std::int64_t global_batch_size_;
  std::uint64_t seed_;
};

/// Windows whose targets are tokens 1 .. tokens - 1 exactly once, in order; the last may be short. When
/// `limit` > 0 and there are more, `limit` of them spread evenly. Empty for fewer than two tokens.
[[nodiscard]] std::vector<Window> validation_windows(std::int64_t tokens, std::int64_t seq_length,
                                                     std::int64_t limit = 0);

}  // namespace expedite::train
