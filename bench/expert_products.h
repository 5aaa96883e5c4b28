// The matrix products of a rank's experts and nothing else: the least time that an MoE layer can take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/kernels/grouped_matmul.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::bench {

/// SwiGLU experts of hidden size H and FFN size F.
struct ExpertShape {
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;
  DType dtype = DType::bf16;
};

class ExpertProducts {
 public:
  /// `counts`: the tokens of each of this rank's experts, which may be none.
  ExpertProducts(const ExpertShape& shape, std::span<const std::int64_t> counts, bool training);

  /// Seconds of all products of one forward and, with training, backward pass (gradients of inputs and of
  /// weights), on the calling thread's OpenMP team.
  [[nodiscard]] double sample();

 private:
  [[nodiscard]] TensorView tensor(DType dtype, Shape shape);

  bool training_;
  kernels::RowBlocks blocks_;
  MemoryPool pool_;
  std::vector<Buffer> buffers_;
  // Gradients have places of their own, so that numbers stay what they are however often this runs.
  TensorView x_;             // [R, H]
  TensorView gate_up_;       // [R, 2 F], in backward read as its gradient
  TensorView activation_;    // [R, F]
  TensorView y_;             // [R, H], in backward read as its gradient
  TensorView w_gate_up_;     // [local E, 2 F, H]
  TensorView w_down_;        // [local E, H, F]
  TensorView dx_;            // [R, H]
  TensorView d_activation_;  // [R, F]
  TensorView dw_gate_up_;
  TensorView dw_down_;
};

}  // namespace expedite::bench
