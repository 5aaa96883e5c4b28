// The safetensors format, written as a stream: the header first, then tensor after tensor, nothing held in
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/base/posix_file.h"
#include "expedite/hf/safetensors.h"

namespace expedite::hf {

/// What was written, for a checkpoint's list of checksums.
struct WrittenFile {
  std::int64_t bytes = 0;
  std::uint32_t crc32 = 0;  // of the whole file, header included (zlib's)
};

class SafetensorsWriter {
 public:
  using Metadata = std::map<std::string, std::string>;

  /// Creates the file and writes its header. Throws Error when it cannot, or when two tensors share a name.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<StoredTensor> tensors,
                    const Metadata& metadata = {{"format", "pt"}});

  /// The next bytes of tensor `name`: whole, or in pieces. Tensors follow the order given to the constructor;
  /// an Error if it is another tensor's turn or the bytes are more than are missing.
  void append(std::string_view name, std::span<const std::byte> bytes);
  /// The next rows of tensor `name`, of the tensor's own type; rows may be strided.
  void append(std::string_view name, ConstTensorView rows);

  /// Brings the file to disk and closes it. Throws Error when a tensor is not complete. Without finish() the
  /// file stays behind unfinished, which readers refuse: write under a temporary name.
  WrittenFile finish();

 private:
  void write(std::span<const std::byte> bytes);
  void skip_complete_tensors();

  PosixFile file_;
  std::vector<StoredTensor> tensors_;
  std::size_t current_ = 0;            // the tensor whose turn it is
  std::int64_t bytes_of_current_ = 0;  // written so far
  WrittenFile written_;
};

/// Which tensors go into which file of a folder.
struct ShardPlan {
  struct Shard {
    std::string file;
    std::vector<StoredTensor> tensors;
  };
  std::vector<Shard> shards;  // at least one
  std::int64_t total_bytes = 0;
};

inline constexpr std::int64_t kMaxShardBytes = std::int64_t{4} << 30;
inline constexpr const char* kSingleFileName = "model.safetensors";
inline constexpr const char* kIndexFileName = "model.safetensors.index.json";

/// Fills files in order, none beyond `max_bytes` of tensors (a larger tensor has a file of its own): one
/// model.safetensors if all fit, else model-00001-of-0000N.safetensors and so on.
[[nodiscard]] ShardPlan plan_shards(const std::vector<StoredTensor>& tensors,
                                    std::int64_t max_bytes = kMaxShardBytes);

/// The text of model.safetensors.index.json; a plan of one file needs none.
[[nodiscard]] std::string index_text(const ShardPlan& plan);

}  // namespace expedite::hf
