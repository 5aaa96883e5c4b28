// What attention of either kind does with its heads: splits them, turns them, and tells the kernel of them.
#pragma once

#include <initializer_list>

#include "expedite/kernels/attention.h"
#include "expedite/kernels/rotary.h"
#include "expedite/model/micro_batch.h"
#include "expedite/model/parameters.h"

namespace expedite::model {

/// Of one layer, for the kernels.
[[nodiscard]] kernels::AttentionOptions attention_options(const ModelConfig& config, std::int64_t layer);

/// [T, heads, D] of [T, heads D].
[[nodiscard]] TensorView split_heads(const TensorView& matrix, std::int64_t heads);

/// Turns config.rotary.rotary_dim elements of each head from `first` on, of each [T, heads, D] in place.
void rotate_heads(const ModelConfig& config, const MicroBatch& batch, std::initializer_list<TensorView> heads,
                  kernels::Rotation direction, std::int64_t first = 0);

}  // namespace expedite::model
