#include "expedite/hf/safetensors_folder.h"

#include <nlohmann/json.hpp>

#include "expedite/base/error.h"
#include "expedite/base/strict_json.h"
#include "expedite/hf/safetensors_writer.h"

namespace expedite::hf {

SafetensorsFolder::SafetensorsFolder(const std::filesystem::path& folder) : folder_(folder) {
  std::error_code ignored;  // what cannot be looked at is reported when it is opened
  if (std::filesystem::exists(folder / kSingleFileName, ignored)) {
    open_single_file();
    return;
  }
  require(std::filesystem::exists(folder / kIndexFileName, ignored),
          "{} has neither {} nor {}: it is not a folder with safetensors weights", folder.string(),
          kSingleFileName, kIndexFileName);
  open_shards();
}

void SafetensorsFolder::open_single_file() {
  files_.emplace_back(folder_ / kSingleFileName);
  for (const StoredTensor& tensor : files_.front().tensors()) {
    file_of_.emplace(tensor.name, 0);
  }
}

void SafetensorsFolder::open_shards() {
  const std::filesystem::path index_path = folder_ / kIndexFileName;
  const nlohmann::json index = read_strict_json(index_path);
  const std::string where = index_path.string();
  require(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
          "{}: the field weight_map is missing or not an object", where);
  std::map<std::string, std::size_t> opened;
  for (const auto& [name, file] : index["weight_map"].items()) {
    require(file.is_string(), "{}: weight_map.{} must be a file name, not {}", where, name, excerpt(file));
    const auto& file_name = file.get_ref<const std::string&>();
    // A name that leads out of the folder would let a downloaded index open any file.
    require(
        !file_name.empty() && std::filesystem::path(file_name).filename() == file_name && file_name != "..",
        "{}: weight_map.{} must be the name of a file in the same folder, not {}", where, name,
        excerpt(file));
    auto found = opened.find(file_name);
    if (found == opened.end()) {
      std::error_code ignored;
      require(std::filesystem::exists(folder_ / file_name, ignored),
              "{}: the shard {} is missing, which holds tensor {} among others", where, file_name, name);
      found = opened.emplace(file_name, files_.size()).first;
      files_.emplace_back(folder_ / file_name);
    }
    require(files_[found->second].contains(name), "{}: tensor {} is not in {}, where weight_map has it",
            where, name, file_name);
    file_of_.emplace(name, found->second);
  }
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> result;
  result.reserve(file_of_.size());
  for (const auto& [name, file] : file_of_) {
    result.push_back(name);
  }
  return result;
}

const SafetensorsFile& SafetensorsFolder::file(std::string_view name) const {
  const auto found = file_of_.find(name);
  require(found != file_of_.end(), "{} has no tensor {}", folder_.string(), name);
  return files_[found->second];
}

}  // namespace expedite::hf
