// The weights of a Hugging Face folder: model.safetensors, or model.safetensors.index.json and its shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/hf/safetensors.h"

namespace expedite::hf {

class SafetensorsFolder {
 public:
  /// Opens every file and checks every header. Throws Error when there are no weights, a shard is missing, or
  /// a tensor is not in the shard that the index names.
  explicit SafetensorsFolder(const std::filesystem::path& folder);

  [[nodiscard]] const std::filesystem::path& path() const { return folder_; }
  [[nodiscard]] std::span<const SafetensorsFile> files() const { return files_; }
  /// Sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool contains(std::string_view name) const { return file_of_.contains(name); }
  /// The file that holds a tensor; an Error naming folder and tensor when there is none.
  [[nodiscard]] const SafetensorsFile& file(std::string_view name) const;
  [[nodiscard]] const StoredTensor& tensor(std::string_view name) const { return file(name).tensor(name); }
  /// See SafetensorsFile::read_rows and read.
  void read_rows(std::string_view name, std::int64_t first_row, TensorView destination) const {
    file(name).read_rows(name, first_row, destination);
  }
  void read(std::string_view name, TensorView destination) const { file(name).read(name, destination); }

 private:
  void open_single_file();
  void open_shards();

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;  // by tensor name
};

}  // namespace expedite::hf
