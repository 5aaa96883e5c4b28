#include "expedite/train/trained_model.h"

#include <algorithm>
#include <vector>

#include "expedite/base/durable_file.h"
#include "expedite/base/error.h"
#include "expedite/base/yaml.h"
#include "expedite/train/training_state.h"

namespace expedite::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunConfig = "config.yaml";
constexpr const char* kCheckpoints = "checkpoints";

bool is_checkpoint(const fs::path& path) {
  return fs::exists(path / kManifestFile);
}

/// "runs/mine/" and "runs/mine/checkpoints" are the folder runs/mine.
fs::path run_folder(const fs::path& path) {
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  return folder.filename() == kCheckpoints ? folder.parent_path() : folder;
}

std::vector<std::string> with_weights(const fs::path& folder, std::span<const std::string> overrides) {
  std::vector<std::string> all = {"model.config={}", "model.path=" + yaml_string(folder.string()),
                                  "model.load_weights=true"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return all;
}

void make_empty_staging(const fs::path& staging) {
  std::error_code error;
  fs::remove_all(staging, error);
  fs::create_directories(staging, error);
  require(!error, "{}: cannot create: {}", staging.string(), error.message());
}

void copy_synced(const fs::path& from, const fs::path& to, const FileRecord& record) {
  std::error_code error;
  fs::copy_file(from, to, error);
  require(!error, "{}: cannot copy to {}: {}", from.string(), to.string(), error.message());
  sync_path(to);
  require(sum_file(to) == FileSum{.size = record.size, .crc32 = record.crc32},
          "{}: does not hold what {} held: is the disk sound?", to.string(), from.string());
}

}  // namespace

Checkpoint find_checkpoint(const fs::path& path, Check check) {
  require(fs::is_directory(path), "{}: {}; expected the folder of a run or of a checkpoint", path.string(),
          fs::exists(path) ? "is not a folder" : "does not exist");
  if (is_checkpoint(path)) {
    return verify_checkpoint(path.has_filename() ? path : path.parent_path(), check);
  }
  const fs::path dir = run_folder(path) / kCheckpoints;
  const std::optional<Checkpoint> newest = latest_valid(dir, check);
  require(newest.has_value(), "{}: is neither a checkpoint nor the folder of a run that has one",
          path.string());
  return *newest;
}

TrainConfig config_of_model(const fs::path& path, std::span<const std::string> overrides, Check check) {
  require(fs::exists(path), "{}: does not exist; expected a configuration, a run, a checkpoint or a model",
          path.string());
  if (!fs::is_directory(path)) {
    const TrainConfig config = read_config(path, overrides);
    if (config.model.load_weights) {
      return config;
    }
    require(has_checkpoints(config.run_dir() / kCheckpoints),
            "{}: names no weights: its run {} has no checkpoint, and model.load_weights is false",
            path.string(), config.run_dir().string());
    return read_config(path, with_weights(find_checkpoint(config.run_dir(), check).path, overrides));
  }
  const fs::path run =
      run_folder(is_checkpoint(path) ? fs::absolute(path).lexically_normal() / "../.." : path)
          .lexically_normal();
  if (fs::exists(run / kRunConfig)) {
    return read_config(run / kRunConfig, with_weights(find_checkpoint(path, check).path, overrides));
  }
  return parse_config("", path.string(), with_weights(path, overrides));
}

void export_model(const Checkpoint& checkpoint, const fs::path& out) {
  const fs::path target = out.has_filename() ? out : out.parent_path();
  std::error_code error;
  require(!fs::exists(target) || (fs::is_directory(target) && fs::is_empty(target)),
          "{}: is there already, and not empty: give another folder, or remove it", target.string());
  fs::path staging = target;
  staging += ".tmp";
  make_empty_staging(staging);
  for (const FileRecord& file : checkpoint.files) {
    if (is_of_model(file.name)) {
      fs::create_directories((staging / file.name).parent_path(), error);
      copy_synced(checkpoint.path / file.name, staging / file.name, file);
    }
  }
  sync_path(staging);
  fs::rename(staging, target, error);  // an empty folder gives way
  require(!error, "{}: cannot rename to {}: {}", staging.string(), target.string(), error.message());
  sync_path(target.has_parent_path() ? target.parent_path() : ".");
}

}  // namespace expedite::train
