// How large the buffers of a step are for a model: the one place for builders, the memory forecast, the
// planner and the ranks that bind them.
#pragma once

#include <cstdint>

#include "expedite/architecture/model_config.h"
#include "expedite/schedule/role.h"
#include "expedite/tensor/dtype.h"

namespace expedite::architecture {

/// Sizes by role. What lies together in a buffer begins at multiples of MemoryPool::kAlignment, as Arena lays
/// it.
class BufferBytes {
 public:
  /// Keeps what it needs of the model; dtype: of weights and activations, f32 or bf16.
  BufferBytes(const ModelConfig& config, DType dtype);

  /// `count` tokens, or routed rows where schedule::holds_rows(role). Throws Error for roles of coarse
  /// pipelines, which are no one layer's.
  [[nodiscard]] std::int64_t operator()(schedule::Role role, std::int64_t count) const;

 private:
  std::int64_t hidden_ = 0;
  std::int64_t element_ = 0;
  std::int64_t experts_ = 0;
  std::int64_t topk_ = 0;
  std::int64_t up_ = 2;  // how many projections an MLP has before its activation
  std::int64_t ffn_ = 0;
  std::int64_t moe_ffn_ = 0;
  std::int64_t shared_ffn_ = 0;
  bool shared_gate_ = false;
  // Bytes per token of each tensor that attention keeps, and that its weight gradients need.
  std::vector<std::int64_t> attention_;
  std::vector<std::int64_t> grad_attention_;
};

}  // namespace expedite::architecture
