#include "tests/reference/loss.h"

#include "tests/reference/softmax.h"

namespace expedite::reference {
namespace {

struct TokenRange {
  std::int64_t begin;
  std::int64_t end;
};

// E * sum of f_e * P_e over some tokens of some layers; adds `factor` times its gradient to dscores (one per
// layer).
double balance_of(const std::vector<const Routing*>& layers, TokenRange tokens, double factor,
                  std::vector<Matrix>& dscores) {
  const std::int64_t experts = layers.front()->scores.columns;
  const double count = static_cast<double>(layers.size()) * static_cast<double>(tokens.end - tokens.begin);
  std::vector<double> share(experts);
  std::vector<double> mean_score(experts);
  for (const Routing* layer : layers) {
    for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
      for (const std::int64_t expert : layer->experts[t]) {
        share[expert] += 1.0 / count;
      }
      for (std::int64_t e = 0; e < experts; ++e) {
        mean_score[e] += layer->scores(t, e) / count;
      }
    }
  }
  for (Matrix& gradient : dscores) {
    for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
      for (std::int64_t e = 0; e < experts; ++e) {
        gradient(t, e) += factor * static_cast<double>(experts) * share[e] / count;
      }
    }
  }
  return static_cast<double>(experts) * dot(share, mean_score);
}

std::vector<Matrix> zeros_like_scores(const std::vector<const Routing*>& layers) {
  std::vector<Matrix> result;
  result.reserve(layers.size());
  for (const Routing* layer : layers) {
    result.emplace_back(layer->scores.rows, layer->scores.columns);
  }
  return result;
}

std::vector<Matrix> to_logits(const std::vector<Matrix>& dscores, const std::vector<const Routing*>& layers,
                              const RouterShape& shape) {
  std::vector<Matrix> result;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    result.push_back(scores_backward(dscores[i], *layers[i], shape));
  }
  return result;
}

bool nothing_routed(const std::vector<const Routing*>& layers) {
  return layers.empty() || layers.front()->scores.rows == 0;
}

}  // namespace

LossAndGradient next_token_loss(const Matrix& logits, std::span<const int> tokens,
                                std::span<const std::int64_t> bounds) {
  LossAndGradient result{0.0, Matrix(logits.rows, logits.columns)};
  std::vector<std::int64_t> predicting;  // the tokens that have a successor
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
    for (std::int64_t t = bounds[s]; t + 1 < bounds[s + 1]; ++t) {
      predicting.push_back(t);
    }
  }
  const auto count = static_cast<double>(predicting.size());
  for (const std::int64_t t : predicting) {
    const int target = tokens[t + 1];
    result.loss += (log_sum_exp(logits.row(t)) - logits(t, target)) / count;
    const std::vector<double> probabilities = softmax(logits.row(t));
    for (std::int64_t v = 0; v < logits.columns; ++v) {
      result.gradient(t, v) = (probabilities[v] - (v == target ? 1.0 : 0.0)) / count;
    }
  }
  return result;
}

RouterLoss load_balance_loss(const std::vector<const Routing*>& layers, const RouterShape& shape) {
  std::vector<Matrix> dscores = zeros_like_scores(layers);
  if (nothing_routed(layers)) {
    return {0.0, std::move(dscores)};
  }
  const double loss = balance_of(layers, {0, layers.front()->scores.rows}, 1.0, dscores);
  return {loss, to_logits(dscores, layers, shape)};
}

RouterLoss sequence_balance_loss(const std::vector<const Routing*>& layers,
                                 std::span<const std::int64_t> bounds, const RouterShape& shape) {
  RouterLoss result;
  const auto total_tokens = static_cast<double>(bounds.back());
  for (const Routing* layer : layers) {
    std::vector<Matrix> dscores = zeros_like_scores({layer});
    for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
      const auto length = static_cast<double>(bounds[s + 1] - bounds[s]);
      if (length > 0.0) {
        const double weight = length / total_tokens / static_cast<double>(layers.size());
        result.loss += weight * balance_of({layer}, {bounds[s], bounds[s + 1]}, weight, dscores);
      }
    }
    result.gradients.push_back(scores_backward(dscores.front(), *layer, shape));
  }
  return result;
}

RouterLoss z_loss(const std::vector<const Routing*>& layers) {
  RouterLoss result;
  for (const Routing* layer : layers) {
    const Matrix& logits = layer->logits;
    const double count = static_cast<double>(layers.size()) * static_cast<double>(logits.rows);
    Matrix gradient(logits.rows, logits.columns);
    for (std::int64_t t = 0; t < logits.rows; ++t) {
      const double normaliser = log_sum_exp(logits.row(t));
      const std::vector<double> probabilities = softmax(logits.row(t));
      result.loss += normaliser * normaliser / count;
      for (std::int64_t e = 0; e < logits.columns; ++e) {
        gradient(t, e) = 2.0 * normaliser * probabilities[e] / count;
      }
    }
    result.gradients.push_back(std::move(gradient));
  }
  return result;
}

}  // namespace expedite::reference
