#include "expedite/hf/safetensors_writer.h"

#include <zlib.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "expedite/base/error.h"

namespace expedite::hf {
namespace {

// Keys keep the order of the file, so that a reader streams through it.
using ordered_json = nlohmann::ordered_json;

std::string header_text(const std::vector<StoredTensor>& tensors,
                        const SafetensorsWriter::Metadata& metadata) {
  ordered_json header = ordered_json::object();
  header["__metadata__"] = metadata;
  std::int64_t begin = 0;
  // Entries go straight into the underlying vector: looking each key up would cost the square of their
  // number.
  auto& entries = header.get_ref<ordered_json::object_t&>();
  for (const StoredTensor& tensor : tensors) {
    const std::int64_t end = begin + tensor.bytes();
    ordered_json entry = ordered_json::object();
    entry["dtype"] = name_of(tensor.type);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {begin, end};
    entries.push_back({tensor.name, std::move(entry)});
    begin = end;
  }
  std::string text = header.dump();
  constexpr std::size_t kAlignment = 8;
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  return text;
}

void check_tensors(const std::vector<StoredTensor>& tensors, const std::filesystem::path& path) {
  std::map<std::string_view, int> seen;
  for (const StoredTensor& tensor : tensors) {
    require(++seen[tensor.name] == 1 && tensor.name != "__metadata__",
            "{}: a second tensor, or a reserved name: {}", path.string(), tensor.name);
    for (const std::int64_t extent : tensor.shape) {
      require(extent >= 0, "{}: tensor {}: an extent of its shape is {}", path.string(), tensor.name, extent);
    }
  }
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<StoredTensor> tensors,
                                     const Metadata& metadata)
    : file_(PosixFile::create(path)), tensors_(std::move(tensors)) {
  check_tensors(tensors_, path);
  const std::string header = header_text(tensors_, metadata);
  const auto length = static_cast<std::uint64_t>(header.size());
  write(std::as_bytes(std::span(&length, 1)));
  write(std::as_bytes(std::span(header)));
  skip_complete_tensors();
}

void SafetensorsWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  const bool any_left = current_ < tensors_.size();
  if (bytes.empty() && (!any_left || tensors_[current_].name != name)) {
    return;  // a tensor without elements is complete before its turn
  }
  require(any_left && tensors_[current_].name == name, "{}: tensor {} was given where {} is next",
          file_.path().string(), name, any_left ? tensors_[current_].name : "the end");
  const std::int64_t missing = tensors_[current_].bytes() - bytes_of_current_;
  require(std::cmp_less_equal(bytes.size(), missing), "{}: tensor {} has {} bytes to come, and was given {}",
          file_.path().string(), name, missing, bytes.size());
  write(bytes);
  bytes_of_current_ += static_cast<std::int64_t>(bytes.size());
  skip_complete_tensors();
}

void SafetensorsWriter::append(std::string_view name, ConstTensorView rows) {
  if (!rows.empty() && current_ < tensors_.size()) {
    require(stored_type(rows.dtype()) == tensors_[current_].type, "{}: tensor {} is stored as {}, not {}",
            file_.path().string(), name, name_of(tensors_[current_].type), expedite::name_of(rows.dtype()));
  }
  const std::int64_t row_bytes = rows.columns() * expedite::size_of(rows.dtype());
  const auto* first = static_cast<const std::byte*>(rows.data());
  if (rows.contiguous()) {
    append(name, std::span(first, static_cast<std::size_t>(rows.bytes())));
    return;
  }
  for (std::int64_t row = 0; row < rows.rows(); ++row) {
    append(name, std::span(first + row * rows.row_stride() * expedite::size_of(rows.dtype()),
                           static_cast<std::size_t>(row_bytes)));
  }
}

WrittenFile SafetensorsWriter::finish() {
  require(current_ == tensors_.size(), "{}: tensor {} was not written to its end", file_.path().string(),
          current_ < tensors_.size() ? tensors_[current_].name : "");
  file_.sync();
  file_.close();
  return written_;
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  file_.write(bytes);
  written_.bytes += static_cast<std::int64_t>(bytes.size());
  written_.crc32 = static_cast<std::uint32_t>(
      crc32_z(written_.crc32, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

void SafetensorsWriter::skip_complete_tensors() {
  while (current_ < tensors_.size() && bytes_of_current_ == tensors_[current_].bytes()) {
    ++current_;
    bytes_of_current_ = 0;
  }
}

ShardPlan plan_shards(const std::vector<StoredTensor>& tensors, std::int64_t max_bytes) {
  ShardPlan plan;
  std::int64_t shard_bytes = 0;
  plan.shards.emplace_back();
  for (const StoredTensor& tensor : tensors) {
    const std::int64_t bytes = tensor.bytes();
    if (!plan.shards.back().tensors.empty() && bytes > max_bytes - shard_bytes) {
      plan.shards.emplace_back();
      shard_bytes = 0;
    }
    plan.shards.back().tensors.push_back(tensor);
    shard_bytes += bytes;
    plan.total_bytes += bytes;
  }
  if (plan.shards.size() == 1) {
    plan.shards.front().file = kSingleFileName;
    return plan;
  }
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    plan.shards[i].file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, plan.shards.size());
  }
  return plan;
}

std::string index_text(const ShardPlan& plan) {
  nlohmann::json index;
  index["metadata"]["total_size"] = plan.total_bytes;
  nlohmann::json& weight_map = index["weight_map"] = nlohmann::json::object();
  for (const ShardPlan::Shard& shard : plan.shards) {
    for (const StoredTensor& tensor : shard.tensors) {
      weight_map[tensor.name] = shard.file;
    }
  }
  constexpr int kIndent = 2;
  return index.dump(kIndent) + "\n";
}

}  // namespace expedite::hf
