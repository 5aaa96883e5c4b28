// What attention.cpp, its vector code and its tests share: the arguments, checked, and the choice of
// arithmetic.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "expedite/kernels/attention.h"
#include "expedite/kernels/parallel.h"

namespace expedite::kernels::attention {

/// How products are computed. `portable`: fp32 multiply-adds, on any CPU and for any type. `bf16_dot`: bf16
/// tensors only, with the CPU's instruction that adds two bf16 products to an fp32 sum (AVX512_BF16), on some
/// twice as fast, on others half as fast; probabilities and their gradients are then rounded to bf16.
enum class Arithmetic : std::uint8_t { portable, bf16_dot };

/// Whether this build and this CPU can compute with `arithmetic`.
[[nodiscard]] bool supports(Arithmetic arithmetic);
/// The arithmetic for tensors of `dtype` here, by bf16_products.h.
[[nodiscard]] Arithmetic best_arithmetic(DType dtype);

struct ForwardArguments {
  AttentionOperands operands;
  std::span<const std::int64_t> bounds;
  AttentionOptions options;
  TensorView out;
  TensorView log_sum_exp;
};

struct BackwardArguments {
  ConstTensorView dout;
  AttentionOperands operands;
  ConstTensorView out;
  ConstTensorView log_sum_exp;
  std::span<const std::int64_t> bounds;
  AttentionOptions options;
  AttentionGradients gradients;
  /// f64 [sequences, heads]: what each adds to the sinks' gradients. backward() makes it, where it is wanted.
  std::span<double> sink_sums = {};
};

[[nodiscard]] inline std::int64_t value_dim(const AttentionOptions& options) {
  return options.value_dim == 0 ? options.head_dim : options.value_dim;
}

/// The sink of a head, which must have one.
[[nodiscard]] inline float sink_of(const AttentionOperands& operands, std::int64_t head) {
  const ConstTensorView& sinks = operands.sinks;
  return sinks.dtype() == DType::f32 ? *sinks.row<float>(head) : static_cast<float>(*sinks.row<bf16>(head));
}

/// As attention_forward and attention_backward, with the arithmetic chosen by the caller; an Error if the
/// arithmetic is not supported here or does not fit the tensors' type.
void forward(const ForwardArguments& arguments, Arithmetic arithmetic, MemoryPool& pool);
void backward(const BackwardArguments& arguments, Arithmetic arithmetic, MemoryPool& pool);

/// Hands out aligned pieces of one block of scratch memory. With a null start it only counts the bytes, so
/// that one function both measures a layout and makes it.
class Carver {
 public:
  explicit Carver(std::byte* start) : start_(start) {}

  template <typename T>
  [[nodiscard]] T* take(std::int64_t count) {
    constexpr std::int64_t kAlignment = MemoryPool::kAlignment;
    const std::int64_t at = bytes_;
    bytes_ += (count * static_cast<std::int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return start_ == nullptr ? nullptr : reinterpret_cast<T*>(start_ + at);
  }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* start_;
  std::int64_t bytes_ = 0;
};

/// A part of the work that shares no output with any other: one sequence under one key/value head.
struct Unit {
  std::int64_t begin = 0;  // first token
  std::int64_t count = 0;  // tokens
  std::int64_t kv_head = 0;
  std::int64_t sequence = 0;
};

/// The number of tokens of the longest sequence.
[[nodiscard]] std::int64_t longest_sequence(std::span<const std::int64_t> bounds);

/// Runs body(unit, scratch) once for every non-empty unit, on all cores. Sequences differ in length and
/// causal work grows with its square, so that threads take one unit after the other instead of equal shares.
template <typename Body>
void for_each_unit(std::span<const std::int64_t> bounds, std::int64_t kv_heads, std::int64_t scratch_bytes,
                   MemoryPool& pool, const Body& body) {
  const auto sequences = static_cast<std::int64_t>(bounds.size()) - 1;
  const std::int64_t units = sequences * kv_heads;
  const std::int64_t workers = std::min<std::int64_t>(team_size(), units);
  const Buffer scratch = pool.allocate(workers * scratch_bytes, MemoryCategory::workspace);
  std::atomic<std::int64_t> next = 0;
  parallel_for(workers, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t worker = first; worker < last; ++worker) {
      std::byte* own_scratch = static_cast<std::byte*>(scratch.data()) + worker * scratch_bytes;
      for (std::int64_t unit = next++; unit < units; unit = next++) {
        const std::int64_t sequence = unit / kv_heads;
        const std::int64_t begin = bounds[sequence];
        const std::int64_t count = bounds[sequence + 1] - begin;
        if (count > 0) {
          body(Unit{begin, count, unit % kv_heads, sequence}, own_scratch);
        }
      }
    }
  });
}

}  // namespace expedite::kernels::attention
