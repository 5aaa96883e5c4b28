// The attention half of a decoder layer: norm, attention of the model's kind, residual; its input gradient,
// and its weight gradients apart from that.
#pragma once

#include <cstdint>

#include "expedite/model/micro_batch.h"
#include "expedite/model/parameters.h"
#include "expedite/tensor/arena.h"

namespace expedite::model {

/// One layer's attention over one micro-batch. T tokens, H hidden. `kept` and `grads` are buffers of roles
/// attention and grad_attention (architecture/buffer_bytes.h).
class AttentionLayer {
 public:
  AttentionLayer(const ModelConfig& config, std::int64_t layer, AttentionWeights& weights,
                 const MicroBatch& batch, DType dtype, MemoryPool& pool)
      : config_(config), layer_(layer), weights_(weights), batch_(batch), dtype_(dtype), pool_(pool) {}

  /// mid = hidden + attention(norm(hidden)), both [T, H].
  void forward(ConstTensorView hidden, Buffer& kept, TensorView mid) const;

  /// grad_hidden = grad_mid + (gradient through attention). The gradients of the norms' weights and of sinks
  /// are added here.
  void input_grad(ConstTensorView hidden, Buffer& kept, ConstTensorView grad_mid, Buffer& grads,
                  TensorView grad_hidden) const;

  /// Adds the gradients of the projections (and their biases).
  void weight_grad(Buffer& kept, ConstTensorView grad_mid, Buffer& grads) const;

 private:
  const ModelConfig& config_;
  std::int64_t layer_;
  AttentionWeights& weights_;
  const MicroBatch& batch_;
  DType dtype_;
  MemoryPool& pool_;
};

}  // namespace expedite::model
