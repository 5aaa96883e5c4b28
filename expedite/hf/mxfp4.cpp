#include "expedite/hf/mxfp4.h"

#include <array>
#include <cmath>
#include <vector>

#include "expedite/base/error.h"

namespace expedite::hf {
namespace {

constexpr std::int64_t kBlock = 32;
constexpr int kScaleBias = 127;

/// E2M1: the sign is the highest of the four bits.
constexpr std::array<float, 16> kNumbers = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                            -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

void require_bytes(const SafetensorsFolder& folder, const std::string& name,
                   const std::vector<std::int64_t>& shape) {
  const StoredTensor& stored = folder.tensor(name);
  require(stored.type == StoredType::u8 && stored.shape == shape,
          "{}: tensor '{}' is {} [{}] where the model's config.json asks for U8 [{}]", folder.path().string(),
          name, name_of(stored.type), fmt::join(stored.shape, ", "), fmt::join(shape, ", "));
}

}  // namespace

bool holds_mxfp4(const SafetensorsFolder& folder, const std::string& name) {
  return folder.contains(name + kMxfp4Blocks) && folder.contains(name + kMxfp4Scales);
}

void check_mxfp4(const SafetensorsFolder& folder, const std::string& name, const Shape& shape) {
  require(shape.rank() == 3 && shape[1] % kBlock == 0,
          "{}: tensor '{}' is in MXFP4, whose blocks of {} do not fit {}", folder.path().string(), name,
          kBlock, to_string(shape));
  require_bytes(folder, name + kMxfp4Blocks, {shape[0], shape[2], shape[1] / kBlock, kBlock / 2});
  require_bytes(folder, name + kMxfp4Scales, {shape[0], shape[2], shape[1] / kBlock});
}

void read_mxfp4(const SafetensorsFolder& folder, const std::string& name, std::int64_t expert,
                const Shape& shape, std::span<float> values) {
  const std::int64_t columns = shape[2];
  const std::int64_t blocks = columns * shape[1] / kBlock;
  std::vector<std::int32_t> bytes(static_cast<std::size_t>(blocks * kBlock / 2));
  std::vector<std::int32_t> scales(static_cast<std::size_t>(blocks));
  const auto row = [](std::vector<std::int32_t>& of) {
    return TensorView(std::span(of)).reshape({1, static_cast<std::int64_t>(of.size())});
  };
  folder.read_rows(name + kMxfp4Blocks, expert, row(bytes));
  folder.read_rows(name + kMxfp4Scales, expert, row(scales));
  for (std::int64_t i = 0; i < blocks * kBlock; ++i) {
    const std::int32_t byte = bytes[static_cast<std::size_t>(i / 2)];
    const auto number = static_cast<std::size_t>(i % 2 == 0 ? byte & 15 : byte >> 4);
    const int exponent = scales[static_cast<std::size_t>(i / kBlock)] - kScaleBias;
    const std::int64_t column = i / shape[1];
    const std::int64_t k = i % shape[1];
    values[static_cast<std::size_t>(k * columns + column)] = std::ldexp(kNumbers[number], exponent);
  }
}

}  // namespace expedite::hf
