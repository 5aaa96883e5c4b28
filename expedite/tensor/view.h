// A non-owning view of a tensor: where it lies, its element type, its shape, and the stride of its rows.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>

#include "expedite/base/error.h"
#include "expedite/tensor/dtype.h"

namespace expedite {

/// Up to four extents, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) {
    require(sizes.size() <= kMaxRank, "a tensor has at most {} dimensions, not {}", kMaxRank, sizes.size());
    for (const std::int64_t size : sizes) {
      sizes_[rank_++] = size;
    }
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] std::int64_t operator[](int dimension) const { return sizes_[dimension]; }
  [[nodiscard]] std::int64_t& operator[](int dimension) { return sizes_[dimension]; }
  [[nodiscard]] std::int64_t elements() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank_; ++i) {
      product *= sizes_[i];
    }
    return product;
  }
  [[nodiscard]] bool operator==(const Shape& other) const = default;

 private:
  std::int64_t sizes_[kMaxRank] = {};
  int rank_ = 0;
};

/// "[2, 24, 64]".
[[nodiscard]] std::string to_string(const Shape& shape);

/// A view whose rows (all dimensions but the first, together) are contiguous and `row_stride` elements apart.
/// `Void` is `void` or `const void`.
template <typename Void>
class BasicTensorView {
 public:
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;

  BasicTensorView() = default;
  /// A contiguous tensor.
  BasicTensorView(Void* data, DType dtype, Shape shape)
      : data_(data), dtype_(dtype), shape_(shape), row_stride_(elements_per_row(shape)) {}
  /// A tensor whose rows start `row_stride` elements apart.
  BasicTensorView(Void* data, DType dtype, Shape shape, std::int64_t row_stride)
      : data_(data), dtype_(dtype), shape_(shape), row_stride_(row_stride) {}
  /// A contiguous one-dimensional view of typed memory.
  template <typename T, std::size_t N>
  explicit(false) BasicTensorView(std::span<T, N> values)  // NOLINT(google-explicit-constructor)
      : BasicTensorView(values.data(), dtype_of<T>(), {static_cast<std::int64_t>(values.size())}) {}
  /// A view may always be read through a const one.
  template <typename Other>
  requires(std::is_const_v<Void> && !std::is_const_v<Other>) explicit(false)
      BasicTensorView(const BasicTensorView<Other>& other)  // NOLINT(google-explicit-constructor)
      : data_(other.data()), dtype_(other.dtype()), shape_(other.shape()), row_stride_(other.row_stride()) {}

  [[nodiscard]] Void* data() const { return data_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::int64_t size(int dimension) const { return shape_[dimension]; }
  [[nodiscard]] int rank() const { return shape_.rank(); }
  [[nodiscard]] std::int64_t elements() const { return shape_.elements(); }
  [[nodiscard]] std::int64_t bytes() const { return elements() * size_of(dtype_); }
  /// Rows are the first dimension; columns everything else, flattened.
  [[nodiscard]] std::int64_t rows() const { return shape_.rank() == 0 ? 1 : shape_[0]; }
  [[nodiscard]] std::int64_t columns() const { return elements_per_row(shape_); }
  [[nodiscard]] std::int64_t row_stride() const { return row_stride_; }
  [[nodiscard]] bool contiguous() const { return rows() <= 1 || row_stride_ == columns(); }
  [[nodiscard]] bool empty() const { return elements() == 0; }

  /// The elements as T; an Error if the dtype is another.
  template <typename T>
  [[nodiscard]] Element<T>* as() const {
    require(dtype_ == dtype_of<T>(), "tensor is {} where {} is needed", name_of(dtype_),
            name_of(dtype_of<T>()));
    return static_cast<Element<T>*>(data_);
  }
  template <typename T>
  [[nodiscard]] Element<T>* row(std::int64_t index) const {
    return as<T>() + index * row_stride_;
  }
  /// All elements of a contiguous tensor.
  template <typename T>
  [[nodiscard]] std::span<Element<T>> span() const {
    require(contiguous(), "a strided tensor has no span");
    return {as<T>(), static_cast<std::size_t>(elements())};
  }

  /// Rows [begin, begin + count).
  [[nodiscard]] BasicTensorView slice(std::int64_t begin, std::int64_t count) const {
    BasicTensorView result = *this;
    result.data_ = bytes_at(begin * row_stride_);
    result.shape_[0] = count;
    return result;
  }
  /// Columns [begin, begin + count) of a matrix.
  [[nodiscard]] BasicTensorView columns_slice(std::int64_t begin, std::int64_t count) const {
    require(rank() == 2, "columns are sliced from a matrix, not from a tensor of rank {}", rank());
    return BasicTensorView(bytes_at(begin), dtype_, {shape_[0], count}, row_stride_);
  }
  /// Element `index` of the first dimension, with one dimension less.
  [[nodiscard]] BasicTensorView operator[](std::int64_t index) const {
    Shape inner;
    switch (rank()) {
      case 2:
        inner = {shape_[1]};
        break;
      case 3:
        inner = {shape_[1], shape_[2]};
        break;
      case 4:
        inner = {shape_[1], shape_[2], shape_[3]};
        break;
      default:
        fail("cannot index a tensor of rank {}", rank());
    }
    return BasicTensorView(bytes_at(index * row_stride_), dtype_, inner);
  }
  /// The same elements under another shape. Strided rows may only be split further, never joined.
  [[nodiscard]] BasicTensorView reshape(Shape shape) const {
    require(shape.elements() == elements(), "cannot view {} as {}", to_string(shape_), to_string(shape));
    if (contiguous()) {
      return BasicTensorView(data_, dtype_, shape);
    }
    require(shape[0] == rows(), "cannot join the strided rows of {} into {}", to_string(shape_),
            to_string(shape));
    return BasicTensorView(data_, dtype_, shape, row_stride_);
  }

 private:
  [[nodiscard]] static std::int64_t elements_per_row(const Shape& shape) {
    std::int64_t product = 1;
    for (int i = 1; i < shape.rank(); ++i) {
      product *= shape[i];
    }
    return product;
  }
  [[nodiscard]] Void* bytes_at(std::int64_t element) const {
    return static_cast<Byte*>(data_) + element * size_of(dtype_);
  }

  Void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Shape shape_;
  std::int64_t row_stride_ = 0;
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

}  // namespace expedite
