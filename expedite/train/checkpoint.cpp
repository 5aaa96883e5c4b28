#include "expedite/train/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>

#include "expedite/base/durable_file.h"
#include "expedite/base/error.h"
#include "expedite/base/log.h"

namespace expedite::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kStaging = ".tmp";
constexpr std::string_view kFormat = "expedite-checkpoint";
constexpr int kVersion = 1;

fs::path staging_path(const fs::path& dir, std::int64_t step) {
  fs::path path = checkpoint_path(dir, step);
  return path += kStaging;
}

/// The step of a folder named step-000100; nothing for any other name.
std::optional<std::int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  std::int64_t step = 0;
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  const bool whole = error == std::errc() && stop == end && step >= 0;
  return whole && checkpoint_path("", step) == name ? std::optional(step) : std::nullopt;
}

/// Steps of the committed checkpoints, ascending.
std::vector<std::int64_t> list_steps(const fs::path& dir) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    if (const auto step = step_of(entry.path()); step && entry.is_directory(error)) {
      steps.push_back(*step);
    }
  }
  require(!error || error == std::errc::no_such_file_or_directory, "{}: cannot list checkpoints: {}",
          dir.string(), error.message());
  std::ranges::sort(steps);
  return steps;
}

bool stays_inside(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && path.is_relative() && path.lexically_normal() == path && path.has_filename() &&
         *path.begin() != "..";
}

void remove_folder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  require(!error, "{}: cannot remove: {}", path.string(), error.message());
}

void rename_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  require(!error, "{}: cannot rename to {}: {}", from.string(), to.string(), error.message());
}

/// Puts `staging` in the place of `target`.
void publish(const fs::path& staging, const fs::path& target) {
  if (!fs::exists(target)) {
    rename_folder(staging, target);
    return;
  }
  if (renameat2(AT_FDCWD, staging.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    remove_folder(staging);  // the old checkpoint now
    return;
  }
  require(errno == EINVAL || errno == ENOSYS, "{}: cannot replace {}: {}", staging.string(), target.string(),
          std::strerror(errno));
  fs::path old = target;
  old += std::string(".old") += kStaging;
  remove_folder(old);
  rename_folder(target, old);
  rename_folder(staging, target);
  remove_folder(old);
}

void check_staged(const fs::path& staging, std::span<const FileRecord> files) {
  std::set<std::string> recorded;
  for (const FileRecord& file : files) {
    require(recorded.insert(file.name).second, "{}: {} is recorded twice", staging.string(), file.name);
  }
  for (const auto& entry : fs::recursive_directory_iterator(staging)) {
    const std::string name = entry.path().lexically_relative(staging).generic_string();
    if (!entry.is_directory() && name != kManifestFile) {
      require(recorded.erase(name) == 1, "{}: {} has not been recorded", staging.string(), name);
    }
  }
  require(recorded.empty(), "{}: {} is recorded but not there", staging.string(),
          recorded.empty() ? "" : *recorded.begin());
}

Checkpoint read_manifest(const fs::path& path) {
  const fs::path file = path / kManifestFile;
  std::ifstream stream(file, std::ios::binary);
  require(stream.is_open(), "{}: cannot read: {}", file.string(), std::strerror(errno));
  try {
    const auto manifest = nlohmann::json::parse(stream);
    require(manifest.at("format") == kFormat, "{}: is not the manifest of a checkpoint", file.string());
    require(manifest.at("version") == kVersion, "{}: has format version {}; this program reads version {}",
            file.string(), manifest.at("version").dump(), kVersion);
    return {path, manifest.at("step").get<std::int64_t>(),
            manifest.at("files").get<std::vector<FileRecord>>()};
  } catch (const nlohmann::json::exception& error) {
    fail("{}: is damaged: {}", file.string(), error.what());
  }
}

void check_file(const fs::path& path, const FileRecord& expected, Check check) {
  std::error_code error;
  const auto size = static_cast<std::int64_t>(fs::file_size(path, error));
  require(!error, "{}: cannot read: {}", path.string(), error.message());
  require(size == expected.size, "{}: has {} bytes where the manifest says {}", path.string(), size,
          expected.size);
  if (check == Check::checksums) {
    const std::uint32_t crc32 = sum_file(path).crc32;
    require(crc32 == expected.crc32, "{}: is damaged: checksum {:08x} where the manifest says {:08x}",
            path.string(), crc32, expected.crc32);
  }
}

bool is_sound(const fs::path& path) {
  try {
    static_cast<void>(verify_checkpoint(path));
    return true;
  } catch (const Error& error) {
    spdlog::warn("{} is damaged, and does not count as one of the checkpoints to keep: {}", path.string(),
                 error.what());
    return false;
  }
}

void remove_checkpoint(const fs::path& dir, std::int64_t step) {
  // Renamed first, so that a half removed checkpoint never has a checkpoint's name.
  const fs::path doomed = staging_path(dir, step);
  remove_folder(doomed);
  rename_folder(checkpoint_path(dir, step), doomed);
  remove_folder(doomed);
}

}  // namespace

void to_json(nlohmann::json& json, const FileRecord& record) {
  json = {{"name", record.name}, {"size", record.size}, {"crc32", record.crc32}};
}

void from_json(const nlohmann::json& json, FileRecord& record) {
  json.at("name").get_to(record.name);
  json.at("size").get_to(record.size);
  json.at("crc32").get_to(record.crc32);
}

fs::path checkpoint_path(const fs::path& dir, std::int64_t step) {
  return dir / fmt::format("{}{:06}", kPrefix, step);
}

fs::path stage_checkpoint(const fs::path& dir, std::int64_t step) {
  fs::path staging = staging_path(dir, step);
  remove_folder(staging);
  std::error_code error;
  fs::create_directories(staging, error);
  require(!error, "{}: cannot create: {}", staging.string(), error.message());
  return staging;
}

FileRecord record_file(const fs::path& staging, const std::string& name) {
  require(stays_inside(name) && name != kManifestFile, "'{}' cannot name a file of a checkpoint", name);
  sync_path(staging / name);
  const auto [size, crc32] = sum_file(staging / name);
  return {name, size, crc32};
}

FileRecord write_file(const fs::path& staging, const std::string& name,
                      const std::function<void(const fs::path&)>& write) {
  require(stays_inside(name) && name != kManifestFile, "'{}' cannot name a file of a checkpoint", name);
  const fs::path file = staging / name;
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  require(!error, "{}: cannot create: {}", file.parent_path().string(), error.message());
  write(file);
  return record_file(staging, name);
}

Checkpoint commit_checkpoint(const fs::path& dir, std::int64_t step, std::span<const FileRecord> files) {
  const fs::path staging = staging_path(dir, step);
  Checkpoint checkpoint = {checkpoint_path(dir, step), step, {files.begin(), files.end()}};
  std::ranges::sort(checkpoint.files, {}, &FileRecord::name);  // the same bytes whichever rank was first
  const nlohmann::json manifest = {
      {"format", kFormat}, {"version", kVersion}, {"step", step}, {"files", checkpoint.files}};
  try {
    check_staged(staging, files);
    write_synced(staging / kManifestFile, manifest.dump(2) + "\n");
    for (const auto& entry : fs::recursive_directory_iterator(staging)) {
      if (entry.is_directory()) {
        sync_path(entry.path());
      }
    }
    sync_path(staging);
    publish(staging, checkpoint.path);
    sync_path(dir);
  } catch (const fs::filesystem_error& error) {
    fail("{}: cannot commit the checkpoint: {}", staging.string(), error.what());
  }
  return checkpoint;
}

bool has_checkpoints(const fs::path& dir) {
  return !list_steps(dir).empty();
}

Checkpoint verify_checkpoint(const fs::path& path, Check check) {
  Checkpoint checkpoint = read_manifest(path);
  require(step_of(path) == checkpoint.step, "{}: is of step {}, not of its folder's",
          (path / kManifestFile).string(), checkpoint.step);
  for (const FileRecord& file : checkpoint.files) {
    require(stays_inside(file.name), "{}: names a file outside the checkpoint: {}",
            (path / kManifestFile).string(), file.name);
    check_file(path / file.name, file, check);
  }
  return checkpoint;
}

std::optional<Checkpoint> latest_valid(const fs::path& dir, Check check) {
  auto steps = list_steps(dir);
  std::ranges::reverse(steps);
  std::string broken;  // of the newest
  for (const std::int64_t step : steps) {
    try {
      return verify_checkpoint(checkpoint_path(dir, step), check);
    } catch (const Error& error) {
      if (check == Check::checksums) {  // else it is looked at again
        spdlog::warn("checkpoint of step {} is not usable, trying an older one: {}", step, error.what());
      }
      broken = broken.empty() ? error.what() : broken;
    }
  }
  require(steps.empty(),
          "{}: none of the {} checkpoints is whole: {}. Repair one, or start the run anew without --resume, "
          "which keeps this folder under another name",
          dir.string(), steps.size(), broken);
  return std::nullopt;
}

void prune_checkpoints(const fs::path& dir, std::int64_t keep, std::int64_t newest_step) {
  auto steps = list_steps(dir);
  std::erase_if(steps, [&](std::int64_t step) { return step > newest_step; });
  if (keep <= 0 || static_cast<std::int64_t>(steps.size()) <= keep) {
    return;
  }
  std::ranges::reverse(steps);
  std::int64_t sound = 0;
  for (const std::int64_t step : steps) {
    if (sound == keep) {
      remove_checkpoint(dir, step);
    } else if (step == newest_step || is_sound(checkpoint_path(dir, step))) {
      ++sound;
    }
  }
}

void remove_leftovers(const fs::path& dir) {
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kStaging) && !entry.is_symlink(error) &&
        entry.is_directory(error)) {
      leftovers.push_back(entry.path());
    }
  }
  require(!error || error == std::errc::no_such_file_or_directory, "{}: cannot list checkpoints: {}",
          dir.string(), error.message());
  for (const fs::path& path : leftovers) {
    remove_folder(path);
  }
}

}  // namespace expedite::train
