#include "expedite/hf/safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "expedite/base/error.h"
#include "expedite/hf/safetensors_header.h"

namespace expedite::hf {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

float f16_to_float(std::uint16_t half) {
  const float sign = (half & 0x8000U) != 0 ? -1.0F : 1.0F;
  const int exponent = (half >> 10) & 0x1F;
  const auto mantissa = static_cast<float>(half & 0x3FFU);
  if (exponent == 0) {  // zero and subnormal
    return sign * std::ldexp(mantissa, -24);
  }
  if (exponent == 0x1F) {
    return mantissa == 0.0F ? sign * std::numeric_limits<float>::infinity()
                            : std::numeric_limits<float>::quiet_NaN();
  }
  return sign * std::ldexp(mantissa + 1024.0F, exponent - 25);
}

template <typename T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

bool is_float(StoredType type) {
  return type != StoredType::i64 && type != StoredType::i32 && type != StoredType::u8;
}

double load_float(const std::byte* bytes, StoredType type) {
  switch (type) {
    case StoredType::f32:
      return load<float>(bytes);
    case StoredType::bf16:
      return static_cast<float>(load<bf16>(bytes));
    case StoredType::f16:
      return f16_to_float(load<std::uint16_t>(bytes));
    default:
      return load<double>(bytes);
  }
}

std::int64_t load_integer(const std::byte* bytes, StoredType type) {
  switch (type) {
    case StoredType::i64:
      return load<std::int64_t>(bytes);
    case StoredType::i32:
      return load<std::int32_t>(bytes);
    default:
      return load<std::uint8_t>(bytes);
  }
}

template <typename T>
void convert(const std::byte* bytes, const StoredTensor& tensor, const std::filesystem::path& path,
             std::span<T> out) {
  constexpr bool kToFloat = !std::is_integral_v<T>;
  const std::int64_t size = size_of(tensor.type);
  for (std::size_t i = 0; i < out.size(); ++i, bytes += size) {
    if constexpr (std::is_same_v<T, bf16>) {
      out[i] = bf16(static_cast<float>(load_float(bytes, tensor.type)));
    } else if constexpr (kToFloat) {
      out[i] = static_cast<T>(load_float(bytes, tensor.type));
    } else {
      const std::int64_t value = load_integer(bytes, tensor.type);
      require(std::in_range<T>(value), "{}: {} holds {}, which does not fit into 32 bits", path.string(),
              tensor.name, value);
      out[i] = static_cast<T>(value);
    }
  }
}

// The types whose bytes are the same in the file and in memory need no conversion.
template <typename T>
bool same_representation(StoredType type) {
  return (std::is_same_v<T, float> && type == StoredType::f32) ||
         (std::is_same_v<T, bf16> && type == StoredType::bf16) ||
         (std::is_same_v<T, double> && type == StoredType::f64) ||
         (std::is_same_v<T, std::int64_t> && type == StoredType::i64) ||
         (std::is_same_v<T, std::int32_t> && type == StoredType::i32);
}

}  // namespace

std::int64_t size_of(StoredType type) {
  switch (type) {
    case StoredType::f64:
    case StoredType::i64:
      return 8;
    case StoredType::f32:
    case StoredType::i32:
      return 4;
    case StoredType::bf16:
    case StoredType::f16:
      return 2;
    case StoredType::u8:
      return 1;
  }
  return 0;
}

std::string_view name_of(StoredType type) {
  switch (type) {
    case StoredType::f32:
      return "F32";
    case StoredType::bf16:
      return "BF16";
    case StoredType::f16:
      return "F16";
    case StoredType::f64:
      return "F64";
    case StoredType::i64:
      return "I64";
    case StoredType::i32:
      return "I32";
    case StoredType::u8:
      return "U8";
  }
  return "?";
}

StoredType stored_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return StoredType::f32;
    case DType::bf16:
      return StoredType::bf16;
    case DType::i32:
      return StoredType::i32;
    case DType::i64:
      return StoredType::i64;
  }
  fail("a dtype without a stored form");
}

std::int64_t StoredTensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t StoredTensor::columns() const {
  if (shape.empty()) {
    return 1;
  }
  return std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(PosixFile::open(path)) {
  SafetensorsHeader header = read_safetensors_header(file_);
  metadata_ = std::move(header.metadata);
  for (SafetensorsHeader::Entry& entry : header.entries) {
    index_.emplace(entry.tensor.name, tensors_.size());
    bytes_.push_back({header.data_begin + entry.begin, header.data_begin + entry.end});
    tensors_.push_back(std::move(entry.tensor));
  }
}

const StoredTensor& SafetensorsFile::tensor(std::string_view name) const {
  const auto found = index_.find(name);
  require(found != index_.end(), "{} has no tensor {}", path().string(), name);
  return tensors_[found->second];
}

template <typename T>
void SafetensorsFile::read_elements(std::size_t index, std::int64_t first, std::span<T> out) const {
  const StoredTensor& tensor = tensors_[index];
  const std::int64_t size = size_of(tensor.type);
  const std::int64_t begin = bytes_[index].begin + first * size;
  if (same_representation<T>(tensor.type)) {
    file_.read_at(begin, std::as_writable_bytes(out));
    return;
  }
  require(is_float(tensor.type) != std::is_integral_v<T>, "{}: {} is {}, and cannot be read as {}",
          path().string(), tensor.name, name_of(tensor.type),
          std::is_integral_v<T> ? "integers" : "floating-point numbers");
  constexpr std::size_t kPieceElements = std::size_t{1} << 16;
  std::vector<std::byte> piece(std::min(out.size(), kPieceElements) * size);
  for (std::size_t done = 0; done < out.size(); done += kPieceElements) {
    const std::size_t count = std::min(kPieceElements, out.size() - done);
    file_.read_at(begin + static_cast<std::int64_t>(done) * size, std::span(piece).first(count * size));
    convert(piece.data(), tensor, path(), out.subspan(done, count));
  }
}

namespace {

template <typename T, typename ReadElements>
void read_into(TensorView destination, std::int64_t first_row, const ReadElements& read_elements) {
  const std::int64_t columns = destination.columns();
  if (destination.contiguous()) {
    read_elements(first_row * columns, destination.span<T>());
    return;
  }
  for (std::int64_t row = 0; row < destination.rows(); ++row) {
    read_elements((first_row + row) * columns,
                  std::span<T>(destination.row<T>(row), static_cast<std::size_t>(columns)));
  }
}

}  // namespace

void SafetensorsFile::read_rows(std::string_view name, std::int64_t first_row, TensorView destination) const {
  const StoredTensor& source = tensor(name);
  require(destination.columns() == source.columns(), "{}: {} has {} elements per row, not {}",
          path().string(), name, source.columns(), destination.columns());
  require(first_row >= 0 && first_row <= source.rows() && destination.rows() <= source.rows() - first_row,
          "{}: {} has {} rows; rows {} to {} were asked for", path().string(), name, source.rows(), first_row,
          first_row + destination.rows());
  const auto index = static_cast<std::size_t>(&source - tensors_.data());
  const auto read_elements = [&](std::int64_t first, auto out) { this->read_elements(index, first, out); };
  switch (destination.dtype()) {
    case DType::f32:
      return read_into<float>(destination, first_row, read_elements);
    case DType::bf16:
      return read_into<bf16>(destination, first_row, read_elements);
    case DType::i32:
      return read_into<std::int32_t>(destination, first_row, read_elements);
    case DType::i64:
      return read_into<std::int64_t>(destination, first_row, read_elements);
  }
}

void SafetensorsFile::read(std::string_view name, TensorView destination) const {
  require(destination.rows() == tensor(name).rows(), "{}: {} has {} rows, not {}", path().string(), name,
          tensor(name).rows(), destination.rows());
  read_rows(name, 0, destination);
}

std::vector<double> SafetensorsFile::read_f64(std::string_view name) const {
  const StoredTensor& source = tensor(name);
  std::vector<double> values(source.elements());
  read_elements(&source - tensors_.data(), 0, std::span(values));
  return values;
}

std::vector<float> SafetensorsFile::read_f32(std::string_view name) const {
  const StoredTensor& source = tensor(name);
  std::vector<float> values(source.elements());
  read_elements(&source - tensors_.data(), 0, std::span(values));
  return values;
}

std::vector<std::int64_t> SafetensorsFile::read_i64(std::string_view name) const {
  const StoredTensor& source = tensor(name);
  std::vector<std::int64_t> values(source.elements());
  read_elements(&source - tensors_.data(), 0, std::span(values));
  return values;
}

}  // namespace expedite::hf
