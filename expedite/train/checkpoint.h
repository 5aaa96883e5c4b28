// Checkpoints as folders that appear whole or not at all: staged under a temporary name, synced, then
// renamed.
//
// One rank calls stage_checkpoint; every rank writes its files into the staging folder and records them; the
// records are gathered and one rank calls commit_checkpoint. What the files hold is not this header's
// business. Whatever instant a crash comes at, latest_valid() finds the newest checkpoint that was committed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace expedite::train {

/// One file of a checkpoint.
struct FileRecord {
  std::string name;  // relative to the checkpoint; may lie in a subfolder ("optimizer/rank-0.bin")
  std::int64_t size = 0;
  std::uint32_t crc32 = 0;
  bool operator==(const FileRecord&) const = default;
};

void to_json(nlohmann::json& json, const FileRecord& record);
void from_json(const nlohmann::json& json, FileRecord& record);

struct Checkpoint {
  std::filesystem::path path;
  std::int64_t step = 0;  // optimizer steps done
  std::vector<FileRecord> files;
};

/// The list of a checkpoint's files, inside it.
inline constexpr const char* kManifestFile = "manifest.json";

/// The folder of a committed checkpoint, dir/step-000100.
[[nodiscard]] std::filesystem::path checkpoint_path(const std::filesystem::path& dir, std::int64_t step);

/// Makes an empty staging folder dir/step-000100.tmp (and `dir`), removing what a crash left under that name.
[[nodiscard]] std::filesystem::path stage_checkpoint(const std::filesystem::path& dir, std::int64_t step);

/// Syncs a file that was written into the staging folder, and measures it.
[[nodiscard]] FileRecord record_file(const std::filesystem::path& staging, const std::string& name);

/// Calls `write` with the file's path (its folder exists), then records it.
[[nodiscard]] FileRecord write_file(const std::filesystem::path& staging, const std::string& name,
                                    const std::function<void(const std::filesystem::path&)>& write);

/// Writes the manifest, syncs the folder, renames it to its final name and syncs `dir`. A checkpoint of the
/// same step is replaced in one atomic exchange where the file system can. Throws Error when the staging
/// folder and `files` differ, and then leaves it as it is.
Checkpoint commit_checkpoint(const std::filesystem::path& dir, std::int64_t step,
                             std::span<const FileRecord> files);

/// How closely files are looked at: their sizes, which takes no time, or all their bytes.
enum class Check : std::uint8_t { sizes, checksums };

/// Whether there is a folder named as a checkpoint, damaged or not.
[[nodiscard]] bool has_checkpoints(const std::filesystem::path& dir);

/// Reads the manifest and checks every file's size and checksum. Throws Error naming the file that is broken.
[[nodiscard]] Checkpoint verify_checkpoint(const std::filesystem::path& path, Check check = Check::checksums);

/// The newest checkpoint that verifies; each newer one that does not is logged as a warning naming its broken
/// file. Nothing when there is none. Throws Error naming what is broken when there are checkpoints and none
/// verifies.
[[nodiscard]] std::optional<Checkpoint> latest_valid(const std::filesystem::path& dir,
                                                     Check check = Check::checksums);

/// Removes what is older than the newest `keep` (0: keep all) checkpoints that verify, counted from
/// `newest_step`, the one just committed. Damaged ones are not counted: they take no sound one's place. Later
/// ones (broken, of a run that was continued from before them) are neither counted nor touched.
void prune_checkpoints(const std::filesystem::path& dir, std::int64_t keep, std::int64_t newest_step);

/// Removes staging folders that a crash left behind. Only when no rank is writing.
void remove_leftovers(const std::filesystem::path& dir);

}  // namespace expedite::train
