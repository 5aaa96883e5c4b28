// Rotary frequencies as Hugging Face works them out from rope_theta and rope_scaling.
#pragma once

#include <cstdint>
#include <vector>

#include "expedite/architecture/rotary_settings.h"

namespace expedite::architecture {

/// [rotary_dim / 2] for batches whose longest sequence has `length` tokens, which only matters for dynamic
/// scaling and lengths beyond max_positions, and for longrope. In float32 arithmetic, as the checkpoints were
/// trained with.
[[nodiscard]] std::vector<float> inverse_frequencies(const RotarySettings& settings, std::int64_t length);

}  // namespace expedite::architecture
