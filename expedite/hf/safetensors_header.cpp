#include "expedite/hf/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "expedite/base/error.h"
#include "expedite/base/strict_json.h"

namespace expedite::hf {
namespace {

using nlohmann::json;

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own implementation
constexpr int kMaxDepth = 3;                           // header { tensor { shape [

std::optional<StoredType> find_type(std::string_view name) {
  constexpr std::array kTypes = {StoredType::f32, StoredType::bf16, StoredType::f16, StoredType::f64,
                                 StoredType::i64, StoredType::i32,  StoredType::u8};
  const auto found = std::ranges::find(kTypes, name, [](StoredType type) { return name_of(type); });
  return found == kTypes.end() ? std::nullopt : std::optional(*found);
}

// The bytes of a tensor, or nothing where the product leaves 64 bits.
std::optional<std::int64_t> checked_bytes(const StoredTensor& tensor) {
  std::int64_t product = size_of(tensor.type);
  for (const std::int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(product, extent, &product)) {
      return std::nullopt;
    }
  }
  return product;
}

std::int64_t count_of(const json& value, const std::string& where, const char* field) {
  require(value.is_number_unsigned(), "{}: {} must be a whole number of 0 or more, not {}", where, field,
          excerpt(value));
  const auto number = value.get<std::uint64_t>();
  require(std::in_range<std::int64_t>(number), "{}: {} is beyond 63 bits: {}", where, field, number);
  return static_cast<std::int64_t>(number);
}

const json& member(const json& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  require(found != entry.end(), "{}: the field {} is missing", where, key);
  return *found;
}

SafetensorsHeader::Entry parse_entry(const std::string& name, const json& value, const std::string& path) {
  const std::string where = fmt::format("{}: tensor {}", path, name);
  require(value.is_object(), "{} must be an object, not {}", where, excerpt(value));
  for (const auto& [key, unused] : value.items()) {
    require(key == "dtype" || key == "shape" || key == "data_offsets", "{}: unknown field {}", where, key);
  }
  SafetensorsHeader::Entry entry;
  entry.tensor.name = name;

  const json& dtype = member(value, "dtype", where);
  require(dtype.is_string(), "{}: dtype must be text, not {}", where, excerpt(dtype));
  const std::optional<StoredType> type = find_type(dtype.get_ref<const std::string&>());
  require(type.has_value(), "{}: dtype {} is not read; F32, BF16, F16, F64, I64 and I32 are", where,
          excerpt(dtype));
  entry.tensor.type = *type;

  const json& shape = member(value, "shape", where);
  require(shape.is_array(), "{}: shape must be a list, not {}", where, excerpt(shape));
  for (const json& extent : shape) {
    entry.tensor.shape.push_back(count_of(extent, where, "an extent of shape"));
  }

  const json& offsets = member(value, "data_offsets", where);
  require(offsets.is_array() && offsets.size() == 2, "{}: data_offsets must be [begin, end], not {}", where,
          excerpt(offsets));
  entry.begin = count_of(offsets[0], where, "data_offsets[0]");
  entry.end = count_of(offsets[1], where, "data_offsets[1]");
  require(entry.begin <= entry.end, "{}: data_offsets [{}, {}] run backwards", where, entry.begin, entry.end);

  const std::optional<std::int64_t> bytes = checked_bytes(entry.tensor);
  require(bytes.has_value(), "{}: shape {} has more bytes than 63 bits can count", where, excerpt(shape));
  require(*bytes == entry.end - entry.begin, "{}: shape {} of {} needs {} bytes, data_offsets give {}", where,
          excerpt(shape), name_of(entry.tensor.type), *bytes, entry.end - entry.begin);
  return entry;
}

std::map<std::string, std::string> parse_metadata(const json& value, const std::string& path) {
  require(value.is_object(), "{}: __metadata__ must be an object, not {}", path, excerpt(value));
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    require(text.is_string(), "{}: __metadata__.{} must be text, not {}", path, key, excerpt(text));
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

// The format wants the tensors to cover the data without overlap and without holes.
void check_coverage(const std::vector<SafetensorsHeader::Entry>& entries, std::int64_t data_bytes,
                    const std::string& path) {
  std::int64_t covered = 0;
  for (const SafetensorsHeader::Entry& entry : entries) {
    require(entry.end <= data_bytes,
            "{}: tensor {}: data_offsets end at {}, but the file holds {} bytes of data", path,
            entry.tensor.name, entry.end, data_bytes);
    require(entry.begin >= covered, "{}: tensor {}: data_offsets overlap those of another tensor", path,
            entry.tensor.name);
    require(entry.begin == covered,
            "{}: tensor {}: bytes {} to {} before its data_offsets belong to no tensor", path,
            entry.tensor.name, covered, entry.begin);
    covered = entry.end;
  }
  require(covered == data_bytes, "{}: {} bytes after the last tensor belong to none", path,
          data_bytes - covered);
}

std::string read_header_text(const PosixFile& file) {
  const std::string path = file.path().string();
  const std::int64_t size = file.size();
  require(size >= kLengthBytes, "{}: {} bytes are too few for a safetensors header length", path, size);
  std::uint64_t length = 0;
  file.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  require(std::cmp_less_equal(length, kMaxHeaderBytes),
          "{}: header length {} is beyond the format's limit of {}", path, length, kMaxHeaderBytes);
  require(std::cmp_less_equal(length, size - kLengthBytes),
          "{}: header length {} is beyond the end of the file, which has {} bytes", path, length, size);
  std::string text(length, ' ');
  file.read_at(kLengthBytes, std::as_writable_bytes(std::span(text)));
  require(text.starts_with('{'), "{}: the header does not start with an opening brace", path);
  return text;
}

}  // namespace

SafetensorsHeader read_safetensors_header(const PosixFile& file) {
  const std::string path = file.path().string();
  const std::string text = read_header_text(file);
  const json parsed = parse_strict_json(text, path + ": header", kMaxDepth);
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + static_cast<std::int64_t>(text.size());
  for (const auto& [name, value] : parsed.items()) {
    if (name == "__metadata__") {
      header.metadata = parse_metadata(value, path);
    } else {
      header.entries.push_back(parse_entry(name, value, path));
    }
  }
  std::ranges::sort(header.entries, {}, [](const auto& entry) { return std::tuple(entry.begin, entry.end); });
  check_coverage(header.entries, file.size() - header.data_begin, path);
  return header;
}

}  // namespace expedite::hf
