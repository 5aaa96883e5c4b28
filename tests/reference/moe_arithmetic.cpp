#include "tests/reference/moe_arithmetic.h"

#include "tests/reference/layer.h"
#include "tests/reference/matrix.h"
#include "tests/reference/router.h"
#include "tests/reference/softmax.h"

namespace expedite::reference {
namespace {

using hf::ParameterNames;

/// In the units of f32: exp and the divisions around it (kernels/simd-inl.h).
constexpr double kExpError = 8 * kF32Unit;
/// Likewise where the result is rounded to bf16: 6e-6, and a reciprocal of 14 bits.
constexpr double kBf16SigmoidError = 0x1p-14 + 6e-6;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

/// f(x) with the slope of f there, and f's own relative error.
Bounded apply(const Bounded& x, double value, double slope, double relative_error) {
  return {value, std::abs(slope) * x.error + relative_error * std::abs(value)};
}

}  // namespace

MoeArithmetic::MoeArithmetic(const ModelConfig& config, const Parameters& parameters, DType dtype)
    : config_(config),
      parameters_(parameters),
      names_(config.family),
      unit_(dtype == DType::bf16 ? kBf16Unit : kF32Unit),
      sigmoid_error_(dtype == DType::bf16 ? kBf16SigmoidError : kExpError) {}

Bounded MoeArithmetic::shared_weight(const BoundedRow& normed) const {
  const Bounded logit = dot(normed, weight(hf::ParameterNames::shared_expert_gate(0)));
  const double gate = sigmoid(logit.value);
  return apply(logit, gate, gate * (1.0 - gate), kExpError);
}

Bounded MoeArithmetic::silu(const Bounded& x) const {
  const double s = sigmoid(x.value);
  return apply(x, x.value * s, s * (1.0 + x.value * (1.0 - s)), sigmoid_error_);
}

Bounded MoeArithmetic::silu_slope(const Bounded& x) const {
  const double s = sigmoid(x.value);
  const double rest = 1.0 - s;
  const Bounded slope = apply(x, s * (1.0 + x.value * rest), s * rest * (2.0 + x.value * (1.0 - 2.0 * s)), 0);
  // Of s (1 + x (1 - s)) with s a little wrong.
  return {slope.value, slope.error + sigmoid_error_ * s * (1.0 + std::abs(x.value))};
}

/// Softmax, or each its sigmoid. With errors eps of the logits, softmax moves by s_e ((1 - s_e) eps_e + the
/// sum over others of s_j eps_j), relative to s_e.
BoundedRow MoeArithmetic::score(const BoundedRow& logits) const {
  const double arithmetic = kExpError + 2.0 * static_cast<double>(logits.size()) * kF32Unit;
  std::vector<double> values;
  double mean_error = 0.0;
  for (const Bounded& logit : logits) {
    values.push_back(logit.value);
  }
  const std::vector<double> softmax = reference::softmax(values);
  for (std::size_t e = 0; e < logits.size(); ++e) {
    mean_error += softmax[e] * logits[e].error;
  }
  BoundedRow scores;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    const double error = logits[e].error;
    if (config_.scoring == architecture::Scoring::sigmoid) {
      const double s = sigmoid(values[e]);
      scores.push_back(apply(logits[e], s, s * (1.0 - s), kExpError));
    } else {
      const double relative = error + mean_error - 2.0 * softmax[e] * error;
      scores.push_back({softmax[e], softmax[e] * (relative + arithmetic)});
    }
  }
  return scores;
}

/// The k gate weights. Renormalised ones depend on the chosen logits alone: a softmax over them moves as
/// score() says, sigmoids by (1 - q_i) delta_i + the sum over others of q_j delta_j, relative, where q is the
/// share of the sum and delta_i = (1 - s_i) eps_i.
BoundedRow MoeArithmetic::weigh(const BoundedRouting& routed) const {
  const double scale = static_cast<double>(config_.routed_scaling_factor);
  const bool sigmoids = config_.scoring == architecture::Scoring::sigmoid;
  const double arithmetic = kExpError + 2.0 * static_cast<double>(routed.scores.size() + 2) * kF32Unit;
  double sum = 0.0;
  for (const std::int64_t e : routed.experts) {
    sum += routed.scores[e].value;
  }
  const auto moved = [&](std::int64_t e) {  // a score's relative error, before it is divided
    return routed.logits[e].error * (sigmoids ? 1.0 - routed.scores[e].value : 1.0);
  };
  double mean = 0.0;
  for (const std::int64_t e : routed.experts) {
    mean += routed.scores[e].value / sum * moved(e);
  }
  BoundedRow weights;
  for (const std::int64_t e : routed.experts) {
    const Bounded& score = routed.scores[e];
    if (config_.norm_topk_prob) {
      const double share = score.value / sum;
      const double relative = moved(e) + mean - 2.0 * share * moved(e);
      weights.push_back({scale * share, scale * share * (relative + arithmetic)});
    } else {
      weights.push_back({scale * score.value, scale * (score.error + arithmetic * score.value)});
    }
  }
  return weights;
}

BoundedRouting MoeArithmetic::route(std::span<const double> x) const {
  const auto width = static_cast<double>(x.size());
  const double inverse = 1.0 / std::sqrt(dot(x, x) / width + static_cast<double>(config_.rms_norm_eps));
  BoundedRouting routed;
  const std::span<const double> norm = weight(hf::ParameterNames::post_attention_norm(0));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = x[i] * inverse;
    routed.normal.push_back({value, (0.5 * width + 4.0) * kF32Unit * std::abs(value)});
    routed.normed.push_back(stored(routed.normal.back() * Bounded{norm[i], 0.0}));
  }
  const std::span<const double> router = weight(names_.router(0));
  Matrix logits(1, config_.experts);
  for (std::int64_t e = 0; e < config_.experts; ++e) {
    routed.logits.push_back(dot(routed.normed, row(router, static_cast<std::size_t>(e))));
    logits(0, e) = routed.logits.back().value;
  }
  routed.scores = score(routed.logits);
  routed.experts = reference::route(logits, selection_bias(), router_shape(config_)).experts[0];
  routed.weights = weigh(routed);
  return routed;
}

/// With shares q of a renormalised sum, d logit_i = w_i (sum over j of q_j (d_i - d_j)), for sigmoids times
/// 1 - s_i; else w_i d_i, for a softmax less s_e times the sum of all w_j d_j, for every expert.
BoundedRow MoeArithmetic::route_backward(const BoundedRouting& routed, const BoundedRow& dweights) const {
  const bool sigmoids = config_.scoring == architecture::Scoring::sigmoid;
  const std::size_t k = routed.experts.size();
  const Bounded scale = {static_cast<double>(config_.routed_scaling_factor), 0.0};
  Bounded sum;
  double magnitude = 0.0;
  for (std::size_t j = 0; j < k; ++j) {
    sum = sum + routed.weights[j] * dweights[j];
    magnitude += std::abs(routed.weights[j].value * dweights[j].value);
  }
  BoundedRow dlogits(routed.scores.size());
  if (!config_.norm_topk_prob && !sigmoids) {
    for (std::size_t e = 0; e < dlogits.size(); ++e) {
      dlogits[e] = Bounded{} - routed.scores[e] * sum;
    }
  }
  for (std::size_t j = 0; j < k; ++j) {
    Bounded gradient = dweights[j];
    if (config_.norm_topk_prob) {
      gradient = {};
      for (std::size_t i = 0; i < k; ++i) {
        if (i != j) {
          const Bounded share = {routed.weights[i].value / scale.value,
                                 routed.weights[i].error / scale.value};
          gradient = gradient + share * (dweights[j] - dweights[i]);
        }
      }
    }
    gradient = routed.weights[j] * gradient;
    const Bounded& score = routed.scores[routed.experts[j]];
    if (sigmoids) {
      gradient = gradient * (Bounded{1.0, 0.0} - score);
    }
    Bounded& dlogit = dlogits[routed.experts[j]];
    dlogit = dlogit + gradient;
  }
  for (Bounded& dlogit : dlogits) {  // the model takes differences of sums that cancel here
    dlogit.error += static_cast<double>(2 * k + 16) * kF32Unit * magnitude;
  }
  return dlogits;
}

BoundedActivations MoeArithmetic::expert_forward(const BoundedRow& x, const SwigluWeights& weights,
                                                 const Bounded& row_weight) const {
  BoundedActivations kept;
  const std::size_t width = weights.gate.size() / x.size();
  for (std::size_t f = 0; f < width; ++f) {
    kept.gate.push_back(stored(dot(x, row(weights.gate, f))));
    kept.up.push_back(stored(dot(x, row(weights.up, f))));
    kept.activated.push_back(stored(row_weight * (silu(kept.gate[f]) * kept.up[f])));
  }
  for (std::size_t h = 0; h < x.size(); ++h) {
    kept.output.push_back(stored(dot(kept.activated, weights.down.subspan(h * width, width))));
  }
  return kept;
}

BoundedExpertGradients MoeArithmetic::expert_backward(std::span<const double> dy,
                                                      const BoundedActivations& kept,
                                                      const SwigluWeights& weights,
                                                      const Bounded& row_weight) const {
  BoundedExpertGradients gradients;
  const std::size_t width = kept.gate.size();
  BoundedRow dactivated;
  BoundedRow unweighted;
  for (std::size_t f = 0; f < width; ++f) {
    dactivated.push_back(stored(dot(column(weights.down, dy.size(), f), dy)));
    unweighted.push_back(silu(kept.gate[f]) * kept.up[f]);
    const Bounded d = row_weight * dactivated[f];
    gradients.gate.push_back(stored(d * kept.up[f] * silu_slope(kept.gate[f])));
    gradients.up.push_back(stored(d * silu(kept.gate[f])));
  }
  gradients.weight = dot(dactivated, unweighted);
  for (std::size_t h = 0; h < dy.size(); ++h) {
    BoundedSum sum;  // one product over both
    for (std::size_t f = 0; f < width; ++f) {
      sum.add(gradients.gate[f] * Bounded{row(weights.gate, f)[h], 0.0});
      sum.add(gradients.up[f] * Bounded{row(weights.up, f)[h], 0.0});
    }
    gradients.input.push_back(stored(sum.result()));
  }
  return gradients;
}

BoundedRow MoeArithmetic::norm_backward(std::span<const double> x, std::span<const double> dy,
                                        const BoundedRouting& routed, const BoundedRow& dnormed) const {
  const std::span<const double> norm = weight(hf::ParameterNames::post_attention_norm(0));
  BoundedRow weighted;
  for (std::size_t i = 0; i < x.size(); ++i) {
    weighted.push_back(dnormed[i] * Bounded{norm[i], 0.0});
  }
  const auto width = static_cast<double>(x.size());
  const double inverse = 1.0 / std::sqrt(dot(x, x) / width + static_cast<double>(config_.rms_norm_eps));
  const Bounded inverse_rms = {inverse, (0.5 * width + 4.0) * kF32Unit * inverse};
  const Bounded mean = dot(weighted, routed.normal) * Bounded{1.0 / width, 0.0};
  BoundedRow dx;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Bounded through = stored(inverse_rms * (weighted[i] - routed.normal[i] * mean));
    dx.push_back(stored(Bounded{dy[i], 0.0} + through));
  }
  return dx;
}

BoundedRow MoeArithmetic::combine(const std::vector<BoundedRow>& addends, const BoundedRouting& routed,
                                  const BoundedRow& residual, const moe::ExpertLayout& layout,
                                  int rank) const {
  BoundedRow result;
  for (std::size_t h = 0; h < addends.front().size(); ++h) {
    BoundedSum total;
    if (!residual.empty()) {
      total.add(residual[h]);
    }
    for (int node = 0; node < layout.nodes(); ++node) {
      const int relay = layout.relay(rank, node);
      BoundedSum at_relay;
      for (const int member : layout.ranks_of_node(node)) {
        BoundedSum share;
        for (std::size_t j = 0; j < addends.size(); ++j) {
          if (layout.owner(routed.experts[j]) == member) {
            share.add(addends[j][h]);
          }
        }
        if (member == relay) {  // adds them to what its neighbours say
          at_relay.add(share);
        } else if (share.addends() > 0) {
          at_relay.add(share.stored(unit_));
        }
      }
      if (relay == rank || layout.row_per_copy()) {
        total.add(at_relay);
      } else if (at_relay.addends() > 0) {
        total.add(at_relay.stored(unit_));
      }
    }
    result.push_back(total.stored(unit_));
  }
  return result;
}

}  // namespace expedite::reference
