#include "tests/reference/context.h"

#include <algorithm>

#include "expedite/architecture/rotary_scaling.h"

namespace expedite::reference {

Context make_context(const ModelConfig& config, const Parameters& parameters,
                     std::span<const std::int64_t> lengths) {
  Context context{config, parameters, hf::ParameterNames(config.family), {0}, {}, {}};
  std::int64_t longest = 0;
  for (const std::int64_t length : lengths) {
    context.bounds.push_back(context.bounds.back() + length);
    for (std::int64_t position = 0; position < length; ++position) {
      context.positions.push_back(position);
    }
    longest = std::max(longest, length);
  }
  const std::vector<float> frequencies = architecture::inverse_frequencies(config.rotary, longest);
  context.rotary = {
      .inverse_frequencies = {frequencies.begin(), frequencies.end()},
      .attention_factor = config.rotary_attention_factor,
      .head_dim = config.head_dim,
      .first = config.attention == architecture::AttentionKind::latent ? config.qk_nope_head_dim : 0,
      .neighbours = config.rotary_neighbours};
  return context;
}

}  // namespace expedite::reference
