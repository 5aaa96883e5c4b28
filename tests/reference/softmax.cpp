#include "tests/reference/softmax.h"

#include <algorithm>
#include <cmath>

#include "tests/reference/matrix.h"

namespace expedite::reference {

double log_sum_exp(std::span<const double> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const double logit : logits) {
    sum += std::exp(logit - largest);
  }
  return largest + std::log(sum);
}

std::vector<double> softmax(std::span<const double> logits) {
  const double normaliser = log_sum_exp(logits);
  std::vector<double> probabilities;
  for (const double logit : logits) {
    probabilities.push_back(std::exp(logit - normaliser));
  }
  return probabilities;
}

std::vector<double> softmax_backward(std::span<const double> dprobabilities,
                                     std::span<const double> probabilities) {
  const double mean = dot(dprobabilities, probabilities);
  std::vector<double> dlogits;
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    dlogits.push_back(probabilities[i] * (dprobabilities[i] - mean));
  }
  return dlogits;
}

}  // namespace expedite::reference
