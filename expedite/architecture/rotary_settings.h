// How a config.json scales rotary embedding: rope_scaling, or rope_parameters as newer files spell it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "expedite/base/config_fields.h"

namespace expedite::architecture {

enum class RotaryScaling : std::uint8_t {
  none,
  linear,    // all positions divided by a factor
  dynamic,   // theta grows with the length, beyond max_position_embeddings (NTK-aware scaling)
  yarn,      // Peng et al., 2023, arXiv:2309.00071
  llama3,    // low frequencies divided by a factor, high ones kept, a ramp between
  longrope,  // Ding et al., 2024, arXiv:2402.13753: a factor for each pair, others beyond the length trained
             // for
};

struct RotarySettings {
  RotaryScaling scaling = RotaryScaling::none;
  double theta = 10000.0;
  std::int64_t rotary_dim = 0;     // the first elements of a head, which turn in pairs; the others stay
  std::int64_t max_positions = 0;  // max_position_embeddings
  double factor = 1.0;
  double original_positions = 0.0;  // yarn, llama3, longrope: the length trained for before scaling
  double attention_factor = 1.0;    // yarn, longrope: multiplies cosine and sine
  double mscale_all_dim = 0.0;      // yarn: what DeepSeek-V3's attention is scaled by, see yarn_mscale
  double beta_fast = 32.0;        // yarn: rotations over the original length from which on nothing is scaled
  double beta_slow = 1.0;         // yarn: rotations below which everything is scaled
  bool truncate = true;           // yarn: the ramp begins and ends at whole pairs
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  // longrope: what each pair's frequency is divided by, up to original_positions and beyond.
  std::vector<double> short_factor;  // [rotary_dim / 2]
  std::vector<double> long_factor;   // [rotary_dim / 2]

  /// What contradicts itself or has no effect, in words that name the file and the field. Whoever reads the
  /// file tells them once.
  std::vector<std::string> notes;
};

/// The share of a head that turns, above 0 and at most 1: partial_rotary_factor, on its own or, in newer
/// files, in rope_parameters.
[[nodiscard]] double partial_rotary_factor(const ConfigFields& config, double default_value);

/// The file says nothing of scaling, or names a kind that parse_rotary_settings reads.
[[nodiscard]] bool reads_rotary_scaling(const ConfigFields& config);

/// 0.1 m ln(factor) + 1, or 1 where nothing is scaled (Peng et al., 2023, section 3.4).
[[nodiscard]] double yarn_mscale(double factor, double m);

/// As transformers reads it from release 4.56 on: a factor that is given is taken, and the ratio of
/// max_position_embeddings to original_max_position_embeddings only where none is. Throws Error naming the
/// field, also where a field of the map is a slip of one that is read.
[[nodiscard]] RotarySettings parse_rotary_settings(const ConfigFields& config, std::int64_t rotary_dim,
                                                   std::int64_t max_positions, double default_theta);

}  // namespace expedite::architecture
