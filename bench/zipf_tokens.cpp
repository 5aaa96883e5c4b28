#include "bench/zipf_tokens.h"

#include <algorithm>
#include <cmath>

#include "expedite/base/error.h"
#include "expedite/base/random.h"

namespace expedite::bench {
namespace {

template <typename T>
void fill(std::int64_t experts, double exponent, const Philox& random, TensorView tokens) {
  for (std::int64_t row = 0; row < tokens.shape()[0]; ++row) {
    T* const values = tokens.row<T>(row);
    for (std::int64_t column = 0; column < tokens.shape()[1]; ++column) {
      const auto index = static_cast<std::uint64_t>(row * tokens.shape()[1] + column);
      if (column >= experts) {
        values[column] = T(static_cast<float>(random.normal(index)));
        continue;
      }
      const double uniform = std::max(random.uniform(index), 0x1p-53);
      const double gumbel = -std::log(-std::log(uniform));
      values[column] = T(static_cast<float>(gumbel - exponent * std::log(static_cast<double>(column + 1))));
    }
  }
}

}  // namespace

void fill_zipf_tokens(std::int64_t experts, double exponent, std::uint64_t seed, int rank,
                      TensorView tokens) {
  require(
      tokens.shape().rank() == 2 && tokens.shape()[1] >= experts,
      "tokens of {} for {} experts: the router's logits are columns of the tokens, so a hidden size of at "
      "least the number of experts is needed",
      to_string(tokens.shape()), experts);
  const Philox random(seed, stream_of("zipf tokens") + static_cast<std::uint64_t>(rank));
  if (tokens.dtype() == DType::bf16) {
    fill<bf16>(experts, exponent, random, tokens);
  } else {
    fill<float>(experts, exponent, random, tokens);
  }
}

}  // namespace expedite::bench
