#include "expedite/kernels/router.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/block_sum.h"
#include "expedite/kernels/parallel.h"
#include "expedite/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/router.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "expedite/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

// x - x is zero for every finite x, and NaN for infinity and NaN.
bool all_finite(const float* row, std::int64_t count) {
  return sum_over_vectors(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
           const F32 x = vector.load(row + i);
           return hn::Sub(x, x);
         }) == 0.0F;
}

// out = exp(logits - largest); returns the sum.
HWY_INLINE float shifted_exp(const float* logits, std::int64_t count, float largest, float* out) {
  return sum_over_vectors(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    const F32 value = fast_exp(hn::Sub(vector.load(logits + i), set(largest)));
    vector.store(value, out + i);
    return vector.select(value, zero());
  });
}

void softmax_row(const float* logits, std::int64_t count, float* scores) {
  const float sum = shifted_exp(logits, count, max_over_row(logits, count), scores);
  const F32 inverse = set(1.0F / sum);
  for_each_vector(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    vector.store(hn::Mul(vector.load(scores + i), inverse), scores + i);
  });
}

void sigmoid_row(const float* logits, std::int64_t count, float* scores) {
  for_each_vector(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    vector.store(fast_sigmoid<float>(at_least(vector.load(logits + i), kSigmoidBound)), scores + i);
  });
}

// The k largest of `candidates`, which are used up: each choice becomes minus infinity. Among equals the
// first is chosen.
void choose_row(float* candidates, std::int64_t count, std::int64_t k, std::int32_t* experts) {
  for (std::int64_t j = 0; j < k; ++j) {
    const float largest = max_over_row(candidates, count);
    std::int64_t chosen = count;
    for (std::int64_t i = 0; chosen == count; i += lanes()) {
      const auto part = static_cast<std::size_t>(std::min(lanes(), count - i));
      const F32 values = hn::MaskedLoad(hn::FirstN(F32Tag(), part), F32Tag(), candidates + i);
      const auto equal = hn::And(hn::Eq(values, set(largest)), hn::FirstN(F32Tag(), part));
      const std::int64_t lane = hn::FindFirstTrue(F32Tag(), equal);
      chosen = lane < 0 ? count : i + lane;
    }
    experts[j] = static_cast<std::int32_t>(chosen);
    candidates[chosen] = -std::numeric_limits<float>::infinity();
  }
}

void add_row(const float* a, const float* b, std::int64_t count, float* sum) {
  for_each_vector(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    vector.store(hn::Add(vector.load(a + i), vector.load(b + i)), sum + i);
  });
}

// out = scores * factor.
void scale_row(const float* scores, std::int64_t count, float factor, float* out) {
  for_each_vector(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    vector.store(hn::Mul(vector.load(scores + i), set(factor)), out + i);
  });
}

// dlogits += scores * (dscores - dscores · scores).
void softmax_backward_row(const float* scores, const float* dscores, std::int64_t count, float* dlogits) {
  const F32 mean = set(sum_over_vectors(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    return hn::Mul(vector.load(dscores + i), vector.load(scores + i));
  }));
  for_each_vector(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    const F32 through = hn::Sub(vector.load(dscores + i), mean);
    vector.store(hn::MulAdd(vector.load(scores + i), through, vector.load(dlogits + i)), dlogits + i);
  });
}

// dlogits += dscores * scores * (1 - scores).
void sigmoid_backward_row(const float* scores, const float* dscores, std::int64_t count, float* dlogits) {
  for_each_vector(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
    const F32 s = vector.load(scores + i);
    const F32 slope = hn::Mul(s, hn::Sub(set(1.0F), s));
    vector.store(hn::MulAdd(vector.load(dscores + i), slope, vector.load(dlogits + i)), dlogits + i);
  });
}

// log(sum(exp(logits))), whose gradient times 2 * itself * scale is added to dlogits unless that is null.
double z_loss_row(const float* logits, std::int64_t count, float scale, float* scratch, float* dlogits) {
  const float largest = max_over_row(logits, count);
  const float sum = shifted_exp(logits, count, largest, scratch);
  const double log_sum = static_cast<double>(largest) + std::log(static_cast<double>(sum));
  if (dlogits != nullptr) {
    const F32 factor = set(static_cast<float>(2.0 * log_sum * scale / sum));
    for_each_vector(count, [&](std::int64_t i, const auto& vector) EXPEDITE_SIMD_LAMBDA {
      vector.store(hn::MulAdd(vector.load(scratch + i), factor, vector.load(dlogits + i)), dlogits + i);
    });
  }
  return log_sum;
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(all_finite);
HWY_EXPORT(softmax_row);
HWY_EXPORT(sigmoid_row);
HWY_EXPORT(choose_row);
HWY_EXPORT(add_row);
HWY_EXPORT(scale_row);
HWY_EXPORT(softmax_backward_row);
HWY_EXPORT(sigmoid_backward_row);
HWY_EXPORT(z_loss_row);

namespace {

constexpr std::int64_t kGrain = 64;  // tokens that are worth a thread

// Keeps the weights of a token finite when every sigmoid score has vanished; lost in rounding otherwise.
constexpr float kLeastSum = 1e-20F;

std::vector<float> make_scratch(std::int64_t experts) {
  return std::vector<float>(static_cast<std::size_t>(experts));
}

void require_f32_matrix(std::string_view name, const ConstTensorView& x) {
  require_type(name, x, DType::f32);
  require_matrix(name, x);
}

void require_options(const RouterOptions& options, std::int64_t experts) {
  require(options.top_k >= 1 && options.top_k <= experts, "a token cannot choose {} of {} experts",
          options.top_k, experts);
  require(options.groups >= 1 && options.top_groups >= 1 && options.top_groups <= options.groups,
          "a token cannot choose {} of {} groups of experts", options.top_groups, options.groups);
  if (options.groups == 1) {
    return;
  }
  const std::int64_t size = experts / options.groups;
  const std::int64_t least = options.group_score == GroupScore::best_two ? 2 : 1;
  require(experts % options.groups == 0 && size >= least,
          "{} experts do not make {} equal groups of {} or more", experts, options.groups, least);
  require(options.top_k <= options.top_groups * size,
          "a token cannot choose {} of the {} experts in {} groups", options.top_k, options.top_groups * size,
          options.top_groups);
}

// A NaN would be compared and lost, and tokens sent anywhere: it is found before anything is written.
void require_finite(const ConstTensorView& logits) {
  std::atomic<std::int64_t> first{logits.rows()};
  parallel_for(logits.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      if (!HWY_DYNAMIC_DISPATCH(all_finite)(logits.row<float>(t), logits.columns())) {
        std::int64_t known = first.load();
        while (t < known && !first.compare_exchange_weak(known, t)) {
        }
        return;
      }
    }
  });
  const std::int64_t row = first.load();
  for (std::int64_t e = 0; row < logits.rows() && e < logits.columns(); ++e) {
    const float logit = logits.row<float>(row)[e];
    require(std::isfinite(logit),
            "router logit [{}, {}] is {}: training has diverged, or a kernel before the router is wrong", row,
            e, logit);
  }
}

void require_bias(std::span<const float> bias, std::int64_t experts) {
  require(bias.empty() || static_cast<std::int64_t>(bias.size()) == experts,
          "the selection bias has {} entries for {} experts", bias.size(), experts);
  for (std::size_t e = 0; e < bias.size(); ++e) {
    require(std::isfinite(bias[e]), "the selection bias of expert {} is {}", e, bias[e]);
  }
}

// Never minus infinity, which is how a group that has been chosen is marked.
float sum_of_best_two(const float* values, std::int64_t count) {
  float best = std::max(values[0], values[1]);
  float second = std::min(values[0], values[1]);
  for (std::int64_t i = 2; i < count; ++i) {
    second = std::max(second, std::min(best, values[i]));
    best = std::max(best, values[i]);
  }
  return std::max(best + second, std::numeric_limits<float>::lowest());
}

// Sets the candidates of all but the best groups to 0, or below all others. group_scores: [groups]; best:
// [top_groups].
void keep_best_groups(const RouterOptions& options, std::int64_t count, float* candidates,
                      std::vector<float>& group_scores, std::vector<std::int32_t>& best) {
  const std::int64_t size = count / options.groups;
  const bool best_two = options.group_score == GroupScore::best_two;
  for (std::int64_t g = 0; g < options.groups; ++g) {
    const float* group = candidates + g * size;
    group_scores[static_cast<std::size_t>(g)] =
        best_two ? sum_of_best_two(group, size) : *std::max_element(group, group + size);
  }
  HWY_DYNAMIC_DISPATCH(choose_row)(group_scores.data(), options.groups, options.top_groups, best.data());
  std::ranges::sort(best);
  auto kept = best.begin();
  for (std::int64_t g = 0; g < options.groups; ++g) {
    if (kept != best.end() && *kept == g) {
      ++kept;
    } else {
      std::fill_n(candidates + g * size, size, best_two ? 0.0F : std::numeric_limits<float>::lowest());
    }
  }
}

void weigh(const float* scores, const std::int32_t* experts, const RouterOptions& options, float* weights) {
  float sum = 0.0F;
  for (std::int64_t j = 0; j < options.top_k; ++j) {
    weights[j] = scores[experts[j]];
    sum += weights[j];
  }
  const float denominator = options.renormalize ? sum + kLeastSum : 1.0F;
  for (std::int64_t j = 0; j < options.top_k; ++j) {
    weights[j] = weights[j] / denominator * options.scaling_factor;
  }
}

// dscores of the chosen experts from dweights. With S the sum of the chosen scores and c the scaling factor,
// weight_j = c score_j / S, so dscore_j = c / S * (dweight_j - sum_i dweight_i score_i / S).
void weigh_backward(const float* dweights, const float* scores, const std::int32_t* experts,
                    const RouterOptions& options, float* dscores) {
  float denominator = 1.0F;
  float mean = 0.0F;
  if (options.renormalize) {
    float sum = 0.0F;
    float dot = 0.0F;
    for (std::int64_t j = 0; j < options.top_k; ++j) {
      sum += scores[experts[j]];
      dot += dweights[j] * scores[experts[j]];
    }
    denominator = sum + kLeastSum;
    mean = dot / denominator;
  }
  for (std::int64_t j = 0; j < options.top_k; ++j) {
    dscores[j] = options.scaling_factor / denominator * (dweights[j] - mean);
  }
}

void route_backward_row(const float* dweights, const float* scores, const std::int32_t* experts,
                        const RouterOptions& options, std::int64_t count, float* dscores, float* dlogits) {
  weigh_backward(dweights, scores, experts, options, dscores);
  float dot = 0.0F;
  for (std::int64_t j = 0; j < options.top_k; ++j) {
    dot += dscores[j] * scores[experts[j]];
  }
  if (options.scoring == Scoring::softmax) {
    HWY_DYNAMIC_DISPATCH(scale_row)(scores, count, -dot, dlogits);
  } else {
    std::fill_n(dlogits, count, 0.0F);
  }
  for (std::int64_t j = 0; j < options.top_k; ++j) {
    const float score = scores[experts[j]];
    const float slope = options.scoring == Scoring::softmax ? score : score * (1.0F - score);
    dlogits[experts[j]] += dscores[j] * slope;
  }
}

void require_experts(const ConstTensorView& experts, std::int64_t count) {
  require_type("experts", experts, DType::i32);
  require_matrix("experts", experts);
  for (std::int64_t t = 0; t < experts.rows(); ++t) {
    for (std::int64_t j = 0; j < experts.columns(); ++j) {
      const std::int32_t expert = experts.row<std::int32_t>(t)[j];
      require(expert >= 0 && expert < count, "token {} chose expert {} of {}", t, expert, count);
    }
  }
}

}  // namespace

void route(ConstTensorView logits, std::span<const float> selection_bias, const RouterOptions& options,
           TensorView scores, TensorView experts, TensorView weights) {
  require_f32_matrix("logits", logits);
  require_options(options, logits.columns());
  require_type("scores", scores, DType::f32);
  require_shape("scores", scores, logits.shape());
  require_type("experts", experts, DType::i32);
  require_shape("experts", experts, {logits.rows(), options.top_k});
  require_type("weights", weights, DType::f32);
  require_shape("weights", weights, experts.shape());
  require_bias(selection_bias, logits.columns());
  require_finite(logits);
  const std::int64_t count = logits.columns();
  parallel_for(logits.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> candidates = make_scratch(count);
    std::vector<float> group_scores = make_scratch(options.groups);
    std::vector<std::int32_t> best_groups(static_cast<std::size_t>(options.top_groups));
    for (std::int64_t t = begin; t < end; ++t) {
      float* score = scores.row<float>(t);
      if (options.scoring == Scoring::softmax) {
        HWY_DYNAMIC_DISPATCH(softmax_row)(logits.row<float>(t), count, score);
      } else {
        HWY_DYNAMIC_DISPATCH(sigmoid_row)(logits.row<float>(t), count, score);
      }
      if (selection_bias.empty()) {
        std::copy_n(score, count, candidates.data());
      } else {
        HWY_DYNAMIC_DISPATCH(add_row)(score, selection_bias.data(), count, candidates.data());
      }
      if (options.top_groups < options.groups) {
        keep_best_groups(options, count, candidates.data(), group_scores, best_groups);
      }
      HWY_DYNAMIC_DISPATCH(choose_row)
      (candidates.data(), count, options.top_k, experts.row<std::int32_t>(t));
      weigh(score, experts.row<std::int32_t>(t), options, weights.row<float>(t));
    }
  });
}

void route_backward(ConstTensorView dweights, ConstTensorView scores, ConstTensorView experts,
                    const RouterOptions& options, TensorView dlogits) {
  require_f32_matrix("scores", scores);
  require_options(options, scores.columns());
  require_type("dlogits", dlogits, DType::f32);
  require_shape("dlogits", dlogits, scores.shape());
  require_shape("experts", experts, {scores.rows(), options.top_k});
  require_type("dweights", dweights, DType::f32);
  require_shape("dweights", dweights, experts.shape());
  require_experts(experts, scores.columns());
  parallel_for(scores.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> dscores = make_scratch(options.top_k);
    for (std::int64_t t = begin; t < end; ++t) {
      route_backward_row(dweights.row<float>(t), scores.row<float>(t), experts.row<std::int32_t>(t), options,
                         scores.columns(), dscores.data(), dlogits.row<float>(t));
    }
  });
}

void count_experts(ConstTensorView experts, TensorView counts) {
  require_type("counts", counts, DType::i64);
  require_experts(experts, counts.elements());
  const std::span<std::int64_t> totals = counts.span<std::int64_t>();
  for (std::int64_t t = 0; t < experts.rows(); ++t) {
    for (std::int64_t j = 0; j < experts.columns(); ++j) {
      ++totals[static_cast<std::size_t>(experts.row<std::int32_t>(t)[j])];
    }
  }
}

void sum_scores(ConstTensorView scores, std::span<double> score_sums) {
  require_f32_matrix("scores", scores);
  require(static_cast<std::int64_t>(score_sums.size()) == scores.columns(), "{} sums for {} experts",
          score_sums.size(), scores.columns());
  add_block_sums(scores.rows(), score_sums,
                 [&](std::int64_t begin, std::int64_t end, std::span<double> partial) {
                   for (std::int64_t t = begin; t < end; ++t) {
                     const float* row = scores.row<float>(t);
                     for (std::size_t e = 0; e < partial.size(); ++e) {
                       partial[e] += static_cast<double>(row[e]);
                     }
                   }
                 });
}

void load_balance_backward(ConstTensorView scores, std::span<const float> expert_gradient, Scoring scoring,
                           TensorView dlogits) {
  require_f32_matrix("scores", scores);
  require_type("dlogits", dlogits, DType::f32);
  require_shape("dlogits", dlogits, scores.shape());
  require(static_cast<std::int64_t>(expert_gradient.size()) == scores.columns(),
          "{} gradients for {} experts", expert_gradient.size(), scores.columns());
  parallel_for(scores.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      if (scoring == Scoring::softmax) {
        HWY_DYNAMIC_DISPATCH(softmax_backward_row)
        (scores.row<float>(t), expert_gradient.data(), scores.columns(), dlogits.row<float>(t));
      } else {
        HWY_DYNAMIC_DISPATCH(sigmoid_backward_row)
        (scores.row<float>(t), expert_gradient.data(), scores.columns(), dlogits.row<float>(t));
      }
    }
  });
}

double z_loss(ConstTensorView logits, float gradient_scale, TensorView dlogits) {
  require_f32_matrix("logits", logits);
  require(logits.rows() == 0 || logits.columns() > 0, "a router needs at least one expert");
  if (present(dlogits)) {
    require_type("dlogits", dlogits, DType::f32);
    require_shape("dlogits", dlogits, logits.shape());
  }
  double loss = 0.0;
  add_block_sums(logits.rows(), std::span<double>(&loss, 1),
                 [&](std::int64_t begin, std::int64_t end, std::span<double> partial) {
                   std::vector<float> scratch = make_scratch(logits.columns());
                   for (std::int64_t t = begin; t < end; ++t) {
                     float* gradient = present(dlogits) ? dlogits.row<float>(t) : nullptr;
                     const double log_sum = HWY_DYNAMIC_DISPATCH(z_loss_row)(
                         logits.row<float>(t), logits.columns(), gradient_scale, scratch.data(), gradient);
                     partial[0] += log_sum * log_sum;
                   }
                 });
  return loss;
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
