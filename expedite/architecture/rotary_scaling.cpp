#include "expedite/architecture/rotary_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace expedite::architecture {
namespace {

std::vector<float> unscaled(double theta, std::int64_t rotary_dim) {
  std::vector<float> result(rotary_dim / 2);
  for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    result[i] = 1.0F / std::pow(static_cast<float>(theta), exponent);
  }
  return result;
}

// The pair of a head that turns `rotations` times over the original length.
double yarn_pair(double rotations, const RotarySettings& settings) {
  return static_cast<double>(settings.rotary_dim) *
         std::log(settings.original_positions / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(settings.theta));
}

void scale_yarn(const RotarySettings& settings, std::vector<float>& frequencies) {
  const double first = yarn_pair(settings.beta_fast, settings);
  const double last = yarn_pair(settings.beta_slow, settings);
  const double low = std::max(settings.truncate ? std::floor(first) : first, 0.0);
  double high =
      std::min(settings.truncate ? std::ceil(last) : last, static_cast<double>(settings.rotary_dim - 1));
  if (low == high) {
    high += 0.001;  // as in Hugging Face: a step instead of a division by zero
  }
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float position = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float keep = 1.0F - std::clamp(position, 0.0F, 1.0F);
    const float wavelength = 1.0F / frequencies[i];
    const float interpolated = 1.0F / (static_cast<float>(settings.factor) * wavelength);
    frequencies[i] = interpolated * (1.0F - keep) + frequencies[i] * keep;
  }
}

void scale_llama3(const RotarySettings& settings, std::vector<float>& frequencies) {
  const auto factor = static_cast<float>(settings.factor);
  const auto original = static_cast<float>(settings.original_positions);
  const auto low = static_cast<float>(settings.low_freq_factor);
  const auto high = static_cast<float>(settings.high_freq_factor);
  for (float& frequency : frequencies) {
    const float wavelength = 2.0F * std::numbers::pi_v<float> / frequency;
    if (wavelength > original / low) {
      frequency /= factor;
    } else if (wavelength >= original / high) {
      const float smooth = (original / wavelength - low) / (high - low);
      frequency = (1.0F - smooth) * frequency / factor + smooth * frequency;
    }
  }
}

void scale_longrope(const RotarySettings& settings, std::int64_t length, std::vector<float>& frequencies) {
  const bool longer = static_cast<double>(length) > settings.original_positions;
  const std::vector<double>& factors = longer ? settings.long_factor : settings.short_factor;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(settings.rotary_dim);
    frequencies[i] =
        1.0F / (static_cast<float>(factors[i]) * std::pow(static_cast<float>(settings.theta), exponent));
  }
}

double dynamic_theta(const RotarySettings& settings, std::int64_t length) {
  const auto dim = static_cast<double>(settings.rotary_dim);
  const auto limit = static_cast<double>(settings.max_positions);
  const double stretch = settings.factor * static_cast<double>(length) / limit - (settings.factor - 1.0);
  return settings.theta * std::pow(stretch, dim / (dim - 2.0));
}

}  // namespace

std::vector<float> inverse_frequencies(const RotarySettings& settings, std::int64_t length) {
  if (settings.scaling == RotaryScaling::dynamic && length > settings.max_positions) {
    return unscaled(dynamic_theta(settings, length), settings.rotary_dim);
  }
  std::vector<float> frequencies = unscaled(settings.theta, settings.rotary_dim);
  switch (settings.scaling) {
    case RotaryScaling::linear:
      for (float& frequency : frequencies) {
        frequency /= static_cast<float>(settings.factor);
      }
      break;
    case RotaryScaling::yarn:
      scale_yarn(settings, frequencies);
      break;
    case RotaryScaling::llama3:
      scale_llama3(settings, frequencies);
      break;
    case RotaryScaling::longrope:
      scale_longrope(settings, length, frequencies);
      break;
    default:
      break;
  }
  return frequencies;
}

}  // namespace expedite::architecture
