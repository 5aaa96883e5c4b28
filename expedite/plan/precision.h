// In which number formats a training step multiplies.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace expedite::plan {

/// Weights, gradients and activations are kept in 16 bits by all of them; the narrow ones are the factors of
/// products.
enum class Precision : std::uint8_t {
  bf16,
  fp16,
  fp8,    // one scale per tensor
  mxfp8,  // one scale per 32 elements
  nvfp4,
};

inline constexpr std::array<std::string_view, 5> kPrecisionNames = {"bf16", "fp16", "fp8", "mxfp8", "nvfp4"};

[[nodiscard]] constexpr std::string_view name_of(Precision precision) {
  return kPrecisionNames[static_cast<std::size_t>(precision)];
}

[[nodiscard]] constexpr std::optional<Precision> parse_precision(std::string_view name) {
  for (std::size_t i = 0; i < kPrecisionNames.size(); ++i) {
    if (kPrecisionNames[i] == name) {
      return static_cast<Precision>(i);
    }
  }
  return std::nullopt;
}

/// Bytes of an element of a factor.
[[nodiscard]] constexpr double factor_bytes(Precision precision) {
  switch (precision) {
    case Precision::bf16:
    case Precision::fp16:
      return 2.0;
    case Precision::fp8:
      return 1.0;
    case Precision::mxfp8:
      return 1.03125;
    case Precision::nvfp4:
      return 0.5625;
  }
  return 2.0;
}

}  // namespace expedite::plan
