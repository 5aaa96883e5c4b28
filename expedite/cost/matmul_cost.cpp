#include "expedite/cost/matmul_cost.h"

#include <algorithm>
#include <cmath>

#include "expedite/base/error.h"

namespace expedite::cost {
namespace {

double log_of(std::int64_t size) {
  return std::log(static_cast<double>(std::max<std::int64_t>(size, 1)));
}

double distance(const MatmulRate& rate, std::int64_t n, std::int64_t k) {
  return std::abs(log_of(rate.n) - log_of(n)) + std::abs(log_of(rate.k) - log_of(k));
}

double rate_at(const MatmulRates& rates, std::int64_t m, std::int64_t n, std::int64_t k) {
  if (rates.shapes.empty()) {
    return rates.peak_flops_per_s;
  }
  const MatmulRate& nearest = *std::ranges::min_element(
      rates.shapes, {}, [&](const MatmulRate& rate) { return distance(rate, n, k); });
  const MatmulRate* below = nullptr;  // of that n and k, with the most rows up to m
  const MatmulRate* above = nullptr;  // and with the fewest from m
  for (const MatmulRate& rate : rates.shapes) {
    if (rate.n != nearest.n || rate.k != nearest.k) {
      continue;
    }
    if (rate.m <= m && (below == nullptr || rate.m > below->m)) {
      below = &rate;
    }
    if (rate.m >= m && (above == nullptr || rate.m < above->m)) {
      above = &rate;
    }
  }
  if (below == nullptr || above == nullptr || below->m == above->m) {
    return (below != nullptr ? below : above)->flops_per_s;
  }
  const double share = (log_of(m) - log_of(below->m)) / (log_of(above->m) - log_of(below->m));
  return below->flops_per_s + share * (above->flops_per_s - below->flops_per_s);
}

}  // namespace

double matmul_seconds(const Device& device, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto rates = std::ranges::find(device.matmul, dtype, &MatmulRates::dtype);
  require(rates != device.matmul.end(), "the device {} has no measured rate of {} products", device.kind,
          name_of(dtype));
  if (m == 0 || n == 0 || k == 0) {
    return 0.0;
  }
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) /
         rate_at(*rates, m, n, k);
}

}  // namespace expedite::cost
