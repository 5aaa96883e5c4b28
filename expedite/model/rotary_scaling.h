// Rotary frequencies as Hugging Face works them out from rope_theta and rope_scaling.
#pragma once

#include <cstdint>
#include <vector>

#include "expedite/base/config_fields.h"

namespace expedite::model {

enum class RotaryScaling : std::uint8_t {
  none,
  linear,   // all positions divided by a factor
  dynamic,  // theta grows with the length, beyond max_position_embeddings (NTK-aware scaling)
  yarn,     // Peng et al., 2023, arXiv:2309.00071
  llama3,   // low frequencies divided by a factor, high ones kept, a ramp between
};

struct RotarySettings {
  RotaryScaling scaling = RotaryScaling::none;
  double theta = 10000.0;
  std::int64_t rotary_dim = 0;     // the first elements of a head, which turn in pairs; the others stay
  std::int64_t max_positions = 0;  // max_position_embeddings
  double factor = 1.0;
  double original_positions = 0.0;  // yarn, llama3: the length trained for before scaling
  double attention_factor = 1.0;    // yarn: multiplies cosine and sine
  double beta_fast = 32.0;        // yarn: rotations over the original length from which on nothing is scaled
  double beta_slow = 1.0;         // yarn: rotations below which everything is scaled
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
};

/// The share of a head that turns, above 0 and at most 1: partial_rotary_factor, on its own or, in newer
/// files, in rope_parameters.
[[nodiscard]] double partial_rotary_factor(const ConfigFields& config, double default_value);

/// From rope_theta and rope_scaling, or rope_parameters as newer files spell them. Throws Error naming the
/// field.
[[nodiscard]] RotarySettings parse_rotary_settings(const ConfigFields& config, std::int64_t rotary_dim,
                                                   std::int64_t max_positions, double default_theta);

/// [rotary_dim / 2] for batches whose longest sequence has `length` tokens, which only matters for dynamic
/// scaling and lengths beyond max_positions. In float32 arithmetic, as the checkpoints were trained with.
[[nodiscard]] std::vector<float> inverse_frequencies(const RotarySettings& settings, std::int64_t length);

}  // namespace expedite::model
