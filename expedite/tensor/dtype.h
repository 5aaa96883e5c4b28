// Element types, and bfloat16 as a plain 16-bit value with round-to-nearest-even conversion.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace expedite {

/// The upper half of an IEEE float32.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7FFFFFFFU) > 0x7F800000U) {  // NaN: keep it one, quiet
      bits = static_cast<std::uint16_t>((word >> 16) | 0x0040U);
    } else {
      bits = static_cast<std::uint16_t>((word + 0x7FFFU + ((word >> 16) & 1U)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};
static_assert(sizeof(bf16) == 2);

enum class DType : std::uint8_t { f32, bf16, i32, i64 };

[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::i64:
      return 8;
  }
  return 0;
}

/// "f32", "bf16", "i32" or "i64".
[[nodiscard]] constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
  }
  return "?";
}

/// The DType of a C++ element type.
template <typename T>
constexpr DType dtype_of() {
  using Element = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Element, float>) {
    return DType::f32;
  } else if constexpr (std::is_same_v<Element, bf16>) {
    return DType::bf16;
  } else if constexpr (std::is_same_v<Element, std::int32_t>) {
    return DType::i32;
  } else {
    static_assert(std::is_same_v<Element, std::int64_t>, "no DType for this type");
    return DType::i64;
  }
}

}  // namespace expedite
