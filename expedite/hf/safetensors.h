// The safetensors format, read: an 8-byte header length, a JSON header, then the tensors' bytes end to end
// (https://github.com/huggingface/safetensors). Files are untrusted: every field is checked before it is
// used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/base/posix_file.h"
#include "expedite/tensor/dtype.h"
#include "expedite/tensor/view.h"

namespace expedite::hf {

/// The element types that are read; a file with another one is refused.
enum class StoredType : std::uint8_t { f32, bf16, f16, f64, i64, i32, u8 };

[[nodiscard]] std::int64_t size_of(StoredType type);
/// As the format spells it: "F32", "BF16", ...
[[nodiscard]] std::string_view name_of(StoredType type);
[[nodiscard]] StoredType stored_type(DType dtype);

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;  // empty: a scalar

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t bytes() const { return elements() * size_of(type); }
  /// Rows are the first dimension (one for a scalar); columns are all the others together.
  [[nodiscard]] std::int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  [[nodiscard]] std::int64_t columns() const;
};

class SafetensorsFile {
 public:
  /// Reads and checks the header. Throws Error naming the file and the field that is wrong: a length beyond
  /// the file, JSON that is broken, nested too deep or repeats a name, a type that is not read, a shape that
  /// overflows or does not match its bytes, offsets that leave the file, overlap or leave holes.
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }
  /// In the order of their bytes in the file.
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  [[nodiscard]] bool contains(std::string_view name) const { return index_.contains(name); }
  /// Throws Error naming file and tensor when there is no such tensor.
  [[nodiscard]] const StoredTensor& tensor(std::string_view name) const;

  /// Rows [first_row, first_row + destination.rows()) of a tensor, converted: floats to f32 or bf16 (rounded
  /// to nearest even), integers to i64 or i32 (an Error if a value does not fit). `destination` has as many
  /// elements per row as the tensor; its rows may be strided. Safe to call from several threads.
  void read_rows(std::string_view name, std::int64_t first_row, TensorView destination) const;
  /// All rows.
  void read(std::string_view name, TensorView destination) const;
  /// A whole tensor of floats, f64 at its full precision.
  [[nodiscard]] std::vector<double> read_f64(std::string_view name) const;
  [[nodiscard]] std::vector<float> read_f32(std::string_view name) const;
  /// A whole tensor of integers.
  [[nodiscard]] std::vector<std::int64_t> read_i64(std::string_view name) const;

 private:
  struct Bytes {
    std::int64_t begin = 0;  // from the start of the file
    std::int64_t end = 0;
  };

  template <typename T>
  void read_elements(std::size_t index, std::int64_t first, std::span<T> out) const;

  PosixFile file_;
  std::vector<StoredTensor> tensors_;
  std::vector<Bytes> bytes_;  // of tensors_[i]
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace expedite::hf
