// Tokens for a layer whose router is to choose experts with a given skew.
#pragma once

#include <cstdint>

#include "expedite/tensor/view.h"

namespace expedite::bench {

/// Rows [T, H] (f32 or bf16) of normal noise whose first E columns are the router's logits, for a router that
/// reads nothing else: expert e's is log((e + 1)^-exponent) plus Gumbel noise, so that the top k are k draws
/// without replacement in proportion to Zipf's law (Gumbel-max; cost::Routing's model). Rounding to bf16 adds
/// ties, which moves few choices. Different for each `rank`. Throws Error when H < E.
void fill_zipf_tokens(std::int64_t experts, double exponent, std::uint64_t seed, int rank, TensorView tokens);

}  // namespace expedite::bench
