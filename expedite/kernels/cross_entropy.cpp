#include "expedite/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/matmul.h"
#include "expedite/kernels/parallel.h"
#include "expedite/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "expedite/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

// Turns a row of logits into exp(logit - max) in place; returns its loss and the exponentials' sum in `sum`.
double exponentials(float* row, std::int64_t vocabulary, std::int32_t target, float* sum) {
  const float largest = max_over_row(row, vocabulary);
  const float logit = row[target];
  const F32 shift = set(largest);
  *sum = sum_over_vectors(vocabulary, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    const F32 value = fast_exp(hn::Sub(vector.load(row + i), shift));
    vector.store(value, row + i);
    return vector.select(value, zero());
  });
  return std::log(static_cast<double>(*sum)) + static_cast<double>(largest) - static_cast<double>(logit);
}

// dlogits = scale * (softmax - one at the target), from exponentials and their sum.
template <typename T>
void logit_gradient(const float* exponential, std::int64_t vocabulary, std::int32_t target, float sum,
                    float scale, T* dlogits) {
  const F32 factor = set(scale / sum);
  const float at_target = scale * (exponential[target] / sum - 1.0F);
  for_each_vector(vocabulary, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    vector.store(hn::Mul(vector.load(exponential + i), factor), dlogits + i);
  });
  dlogits[target] = T(at_target);
}

void logit_gradient_row(const float* exponential, std::int32_t target, float sum, float scale,
                        const TensorView& dlogits) {
  if (dlogits.dtype() == DType::bf16) {
    logit_gradient(exponential, dlogits.elements(), target, sum, scale, dlogits.as<bf16>());
  } else {
    logit_gradient(exponential, dlogits.elements(), target, sum, scale, dlogits.as<float>());
  }
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(exponentials);
HWY_EXPORT(logit_gradient_row);

namespace {

/// Rows whose logits are held at once. Many, because each block reads and writes all of the weight's
/// gradient; not too many, because of the memory.
std::int64_t block_rows(std::int64_t vocabulary) {
  constexpr std::int64_t kMostBytes = std::int64_t{128} << 20;
  constexpr std::int64_t kMostRows = 1024;
  constexpr std::int64_t kStep = 16;
  const std::int64_t fitting =
      kMostBytes / (std::max<std::int64_t>(vocabulary, 1) * static_cast<std::int64_t>(sizeof(float)));
  return std::clamp(fitting / kStep * kStep, kStep, kMostRows);
}

void check(ConstTensorView hidden, ConstTensorView weight, std::span<const std::int32_t> targets,
           const CrossEntropyGradients* gradients) {
  require_matrix("hidden", hidden);
  require_matrix("weight", weight);
  require_float("hidden", hidden);
  require_type("weight", weight, hidden.dtype());
  require(weight.size(1) == hidden.size(1), "the head's weight has rows of {}, but hidden has rows of {}",
          weight.size(1), hidden.size(1));
  require(std::ssize(targets) == hidden.size(0), "{} targets for {} tokens", targets.size(), hidden.size(0));
  for (std::size_t t = 0; t < targets.size(); ++t) {
    require(targets[t] == kIgnoredTarget || (targets[t] >= 0 && targets[t] < weight.size(0)),
            "target {} of token {} is outside the vocabulary of {}", targets[t], t, weight.size(0));
  }
  if (gradients != nullptr) {
    require_type("dhidden", gradients->dhidden, hidden.dtype());
    require_shape("dhidden", gradients->dhidden, hidden.shape());
    require_type("dweight", gradients->dweight, DType::f32);
    require_shape("dweight", gradients->dweight, weight.shape());
  }
}

/// Losses of a block's rows from its logits, which are overwritten, and the logits' gradients if wanted.
void softmax_block(const TensorView& logits, std::span<const std::int32_t> targets, float scale,
                   const TensorView* dlogits, std::span<double> losses) {
  const std::int64_t vocabulary = logits.size(1);
  parallel_for(logits.rows(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int32_t target = targets[r];
      if (target == kIgnoredTarget) {
        losses[r] = 0.0;
        if (dlogits != nullptr) {
          fill_zero((*dlogits)[r]);
        }
        continue;
      }
      float sum = 0.0F;
      losses[r] = HWY_DYNAMIC_DISPATCH(exponentials)(logits.row<float>(r), vocabulary, target, &sum);
      if (dlogits != nullptr) {
        HWY_DYNAMIC_DISPATCH(logit_gradient_row)(logits.row<float>(r), target, sum, scale, (*dlogits)[r]);
      }
    }
  });
}

}  // namespace

double linear_cross_entropy(ConstTensorView hidden, ConstTensorView weight,
                            std::span<const std::int32_t> targets, const CrossEntropyGradients* gradients,
                            MemoryPool& pool) {
  check(hidden, weight, targets, gradients);
  const std::int64_t tokens = hidden.size(0);
  const std::int64_t vocabulary = weight.size(0);
  const std::int64_t most_rows = std::min(block_rows(vocabulary), tokens);
  const DType type = hidden.dtype();
  const bool separate = gradients != nullptr && type != DType::f32;  // f32 gradients replace the logits
  const Buffer logit_memory =
      pool.allocate(most_rows * vocabulary * size_of(DType::f32), MemoryCategory::workspace);
  const Buffer gradient_memory =
      pool.allocate(separate ? most_rows * vocabulary * size_of(type) : 0, MemoryCategory::workspace);
  std::vector<double> losses(targets.size());
  for (std::int64_t begin = 0; begin < tokens; begin += most_rows) {
    const std::int64_t rows = std::min(most_rows, tokens - begin);
    const ConstTensorView block = hidden.slice(begin, rows);
    const TensorView logits = logit_memory.view(DType::f32, {rows, vocabulary});
    const TensorView dlogits = separate ? gradient_memory.view(type, {rows, vocabulary}) : logits;
    matmul(block, weight, logits, {.transpose_b = true});
    softmax_block(logits, targets.subspan(begin, rows), gradients == nullptr ? 0.0F : gradients->scale,
                  gradients == nullptr ? nullptr : &dlogits, std::span(losses).subspan(begin, rows));
    if (gradients != nullptr) {
      matmul(dlogits, weight, gradients->dhidden.slice(begin, rows));
      matmul(dlogits, block, gradients->dweight, {.transpose_a = true, .accumulate = true});
    }
  }
  double loss = 0.0;
  for (const double token_loss : losses) {
    loss += token_loss;
  }
  return loss;
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
