#include "expedite/model/attention_heads.h"

#include <algorithm>
#include <vector>

#include "expedite/architecture/rotary_scaling.h"

namespace expedite::model {

kernels::AttentionOptions attention_options(const ModelConfig& config, std::int64_t layer) {
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .value_dim = config.value_dim,
          .scale = config.attention_scale,
          .sliding_window = config.window(layer)};
}

TensorView split_heads(const TensorView& matrix, std::int64_t heads) {
  return TensorView(matrix.data(), matrix.dtype(), {matrix.rows(), heads, matrix.columns() / heads},
                    matrix.row_stride());
}

void rotate_heads(const ModelConfig& config, const MicroBatch& batch, std::initializer_list<TensorView> heads,
                  kernels::Rotation direction, std::int64_t first) {
  std::int64_t longest = 0;
  for (std::size_t s = 0; s + 1 < batch.bounds.size(); ++s) {
    longest = std::max(longest, batch.bounds[s + 1] - batch.bounds[s]);
  }
  const std::vector<float> turns = architecture::inverse_frequencies(config.rotary, longest);
  const kernels::RotaryLayout layout = {
      .pairs = config.rotary_neighbours ? kernels::RotaryPairs::neighbours : kernels::RotaryPairs::halves,
      .first = first};
  for (const TensorView& of : heads) {
    kernels::rotary(of, batch.positions, turns, config.rotary_attention_factor, direction, layout);
  }
}

}  // namespace expedite::model
