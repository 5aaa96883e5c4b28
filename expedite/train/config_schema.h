// The schema of the configuration: one table from which reading, checking, writing and the reference all
// come.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "expedite/train/config.h"

namespace expedite::train {

/// Where a field's value lives; the alternative is the field's type.
using Slot =
    std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*, nlohmann::json*,
                 ChunkCount*, DType*, Dispatcher*, schedule::ChunkPipeline*, schedule::MoeRecompute*,
                 LoadBalancing*, kernels::Bf16Products*, const schedule::Builder**>;

/// What a number may be.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;

  [[nodiscard]] bool holds(double value) const;
  [[nodiscard]] std::string text() const;  // ">= 1", "in [0, 1)"
};

struct Field {
  std::string_view key;  // dotted path
  Slot (*slot)(TrainConfig&);
  Range range;
  std::string_view help;
};

/// Every field, sections together, in the order in which they are written.
[[nodiscard]] std::span<const Field> schema();

inline constexpr std::string_view kAutomatic = "auto";

/// The names of an enumeration's values (or of what is registered), in the order of the values that the
/// schema allows.
template <typename Enum>
struct EnumName {
  Enum value;
  std::string_view name;
};
[[nodiscard]] std::span<const EnumName<DType>> enum_names(DType);
[[nodiscard]] std::span<const EnumName<Dispatcher>> enum_names(Dispatcher);
[[nodiscard]] std::span<const EnumName<schedule::ChunkPipeline>> enum_names(schedule::ChunkPipeline);
[[nodiscard]] std::span<const EnumName<schedule::MoeRecompute>> enum_names(schedule::MoeRecompute);
[[nodiscard]] std::span<const EnumName<LoadBalancing>> enum_names(LoadBalancing);
[[nodiscard]] std::span<const EnumName<kernels::Bf16Products>> enum_names(kernels::Bf16Products);
[[nodiscard]] std::span<const EnumName<const schedule::Builder*>> enum_names(const schedule::Builder*);

template <typename Enum>
[[nodiscard]] std::string enum_name(Enum value) {
  for (const auto& entry : enum_names(value)) {
    if (entry.value == value) {
      return std::string(entry.name);
    }
  }
  return "?";
}

/// What a field may hold, in words: "an integer >= 1", "bf16 or f32".
[[nodiscard]] std::string legal_values(const Field& field);

}  // namespace expedite::train
