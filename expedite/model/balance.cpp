#include "expedite/model/balance.h"

#include "expedite/kernels/router.h"

namespace expedite::model {
namespace {

/// The router's tensors for tokens [begin, begin + count).
struct Tokens {
  ConstTensorView scores;
  ConstTensorView experts;

  Tokens(const RouterActivations& router, std::int64_t begin, std::int64_t count)
      : scores(router.scores.slice(begin, count)), experts(router.experts.slice(begin, count)) {}

  [[nodiscard]] std::vector<double> shares() const {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(scores.columns()), 0);
    kernels::count_experts(experts, TensorView(std::span(counts)));
    std::vector<double> result(counts.size());
    for (std::size_t e = 0; e < counts.size(); ++e) {
      result[e] = static_cast<double>(counts[e]) / static_cast<double>(scores.rows());
    }
    return result;
  }

  [[nodiscard]] double loss_times_tokens(std::span<const double> shares) const {
    std::vector<double> sums(shares.size(), 0.0);
    kernels::sum_scores(scores, sums);
    double total = 0.0;
    for (std::size_t e = 0; e < shares.size(); ++e) {
      total += shares[e] * sums[e];
    }
    return total * static_cast<double>(shares.size());
  }

  void backward(std::span<const double> shares, double scale, kernels::Scoring scoring,
                TensorView grad_logits) const {
    std::vector<float> gradient(shares.size());
    for (std::size_t e = 0; e < shares.size(); ++e) {
      gradient[e] = static_cast<float>(scale * static_cast<double>(shares.size()) * shares[e]);
    }
    kernels::load_balance_backward(scores, gradient, scoring, grad_logits);
  }
};

template <typename Visit>
void for_each_sequence(std::span<const std::int64_t> bounds, const Visit& visit) {
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
    if (bounds[s + 1] > bounds[s]) {
      visit(bounds[s], bounds[s + 1] - bounds[s]);
    }
  }
}

}  // namespace

double sequence_aux_loss(const RouterActivations& router, std::span<const std::int64_t> bounds) {
  double total = 0.0;
  for_each_sequence(bounds, [&](std::int64_t begin, std::int64_t count) {
    const Tokens sequence(router, begin, count);
    total += sequence.loss_times_tokens(sequence.shares());
  });
  return total;
}

void sequence_aux_backward(const ModelConfig& config, const RouterActivations& router,
                           std::span<const std::int64_t> bounds, double scale, TensorView grad_logits) {
  for_each_sequence(bounds, [&](std::int64_t begin, std::int64_t count) {
    const Tokens sequence(router, begin, count);
    sequence.backward(sequence.shares(), scale, router_options(config).scoring,
                      grad_logits.slice(begin, count));
  });
}

double batch_aux_loss(const RouterActivations& router, std::span<const double> shares) {
  return Tokens(router, 0, router.scores.rows()).loss_times_tokens(shares);
}

void batch_aux_backward(const ModelConfig& config, const RouterActivations& router,
                        std::span<const double> shares, double scale, TensorView grad_logits) {
  Tokens(router, 0, router.scores.rows())
      .backward(shares, scale, router_options(config).scoring, grad_logits);
}

}  // namespace expedite::model
