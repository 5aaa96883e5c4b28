#include "expedite/train/checkpoint.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <functional>
#include <set>
#include <sstream>

#include "expedite/base/error.h"
#include "expedite/base/log.h"
#include "tests/test_folder.h"

namespace expedite::train {
namespace {

namespace fs = std::filesystem;

/// What is logged while it lives.
class LogCapture {
 public:
  LogCapture() : previous_(spdlog::default_logger()) {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("capture", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~LogCapture() { spdlog::set_default_logger(previous_); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> previous_;
};

/// The files of step `step`, written into the staging folder.
std::vector<FileRecord> write_content(const fs::path& staging, std::int64_t step) {
  const auto put = [](const std::string& content) {
    return [content](const fs::path& file) { std::ofstream(file, std::ios::binary) << content; };
  };
  return {write_file(staging, "weights.bin", put(std::string(1'200'000, static_cast<char>('a' + step % 26)))),
          write_file(staging, "ranks/0.json", put("rank 0 of step " + std::to_string(step))),
          write_file(staging, "empty", put(""))};
}

Checkpoint save(const fs::path& dir, std::int64_t step) {
  return commit_checkpoint(dir, step, write_content(stage_checkpoint(dir, step), step));
}

std::int64_t latest_step(const fs::path& dir) {
  const auto checkpoint = latest_valid(dir);
  return checkpoint ? checkpoint->step : -1;
}

std::set<std::string> names_in(const fs::path& dir) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) {
    names.insert(entry.path().filename());
  }
  return names;
}

TEST(Checkpoint, IsFoundAgainWhole) {
  const TestFolder folder;
  const fs::path dir = folder.path() / "checkpoints";
  EXPECT_FALSE(latest_valid(dir));
  const auto saved = save(dir, 100);
  EXPECT_EQ(saved.path, dir / "step-000100");
  EXPECT_EQ(names_in(dir), std::set<std::string>{"step-000100"});
  const auto found = latest_valid(dir);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path, saved.path);
  EXPECT_EQ(found->step, 100);
  EXPECT_EQ(found->files, saved.files);
  EXPECT_EQ(read_text(found->path / "ranks/0.json"), "rank 0 of step 100");
}

TEST(Checkpoint, OrdersByStepNotByName) {
  const TestFolder folder;
  save(folder.path(), 999'999);
  save(folder.path(), 1'000'000);
  save(folder.path(), 5);
  EXPECT_EQ(latest_step(folder.path()), 1'000'000);
}

TEST(Checkpoint, ManifestHoldsChecksumsInTheFieldsForm) {
  const TestFolder folder;
  const auto staging = stage_checkpoint(folder.path(), 1);
  const auto record =
      write_file(staging, "a", [](const fs::path& file) { std::ofstream(file) << "123456789"; });
  EXPECT_EQ(record.crc32, 0xCBF43926U);  // the check value of CRC-32
  EXPECT_EQ(record.size, 9);
  commit_checkpoint(folder.path(), 1, std::vector{record});
  const auto manifest = nlohmann::json::parse(read_text(folder.path() / "step-000001/manifest.json"));
  EXPECT_EQ(manifest, nlohmann::json::parse(R"({"format": "expedite-checkpoint", "version": 1, "step": 1,
    "files": [{"name": "a", "size": 9, "crc32": 3421780262}]})"));
}

/// Saves steps 1 and 2, lets `damage` at step 2, and expects step 1 and a warning with `words`.
void expect_fallback(const std::function<void(const fs::path&)>& damage, const std::string& words) {
  const TestFolder folder;
  save(folder.path(), 1);
  const auto newest = save(folder.path(), 2);
  damage(newest.path);
  const LogCapture log;
  EXPECT_EQ(latest_step(folder.path()), 1);
  EXPECT_NE(log.text().find(words), std::string::npos) << log.text();
}

TEST(Checkpoint, FallsBackFromADamagedOneAndNamesTheFile) {
  const auto rewrite = [](const char* name, const std::function<void(std::string&)>& change) {
    return [=](const fs::path& path) {
      std::string text = read_text(path / name);
      change(text);
      std::ofstream(path / name, std::ios::binary) << text;
    };
  };
  expect_fallback([](const fs::path& path) { fs::resize_file(path / "weights.bin", 1'199'999); },
                  "step-000002/weights.bin: has 1199999 bytes where the manifest says 1200000");
  expect_fallback(rewrite("weights.bin", [](std::string& text) { text[1'100'000] ^= 1; }),
                  "step-000002/weights.bin: is damaged: checksum");
  expect_fallback(rewrite("empty", [](std::string& text) { text = "x"; }), "step-000002/empty: has 1 bytes");
  expect_fallback([](const fs::path& path) { fs::remove(path / "ranks/0.json"); },
                  "step-000002/ranks/0.json");
  expect_fallback(
      [](const fs::path& path) {
        fs::remove(path / "empty");
        fs::create_directory(path / "empty");
      },
      "step-000002/empty: cannot read");
  expect_fallback([](const fs::path& path) { fs::remove(path / "manifest.json"); },
                  "step-000002/manifest.json");
  expect_fallback([](const fs::path& path) { fs::resize_file(path / "manifest.json", 40); },
                  "step-000002/manifest.json: is damaged");
  expect_fallback(rewrite("manifest.json", [](std::string& text) { text = "{}"; }),
                  "manifest.json: is damaged");
  expect_fallback(
      rewrite("manifest.json",
              [](std::string& text) { text.replace(text.find("\"version\": 1"), 12, "\"version\": 2"); }),
      "format version 2; this program reads version 1");
  expect_fallback(
      rewrite("manifest.json", [](std::string& text) { text.replace(text.find("weights"), 7, "../up/w"); }),
      "outside the checkpoint");
  expect_fallback(
      [](const fs::path& path) {
        fs::remove_all(path);
        fs::copy(path.parent_path() / "step-000001", path, fs::copy_options::recursive);
      },
      "is of step 1, not of its folder's");
}

TEST(Checkpoint, IsAnErrorWhenAllAreDamaged) {
  const TestFolder folder;
  EXPECT_FALSE(latest_valid(folder.path()));
  EXPECT_FALSE(has_checkpoints(folder.path()));
  fs::resize_file(save(folder.path(), 1).path / "weights.bin", 0);
  const LogCapture log;
  EXPECT_TRUE(has_checkpoints(folder.path()));
  try {
    static_cast<void>(latest_valid(folder.path()));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("none of the 1 checkpoints is whole"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("step-000001/weights.bin"), std::string::npos);
  }
}

TEST(Checkpoint, SizesAloneTellOfTruncationButNotOfChangedBytes) {
  const TestFolder folder;
  const auto path = save(folder.path(), 1).path / "weights.bin";
  std::string text = read_text(path);
  text[7] ^= 1;
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_TRUE(latest_valid(folder.path(), Check::sizes));
  EXPECT_THROW(static_cast<void>(latest_valid(folder.path())), Error);
  fs::resize_file(path, 5);
  EXPECT_THROW(static_cast<void>(latest_valid(folder.path(), Check::sizes)), Error);
}

// A crash between any two operations: each test does a prefix of what saving does, then looks, then saves
// again.

void expect_recovery(const fs::path& dir, std::int64_t latest) {
  EXPECT_EQ(latest_step(dir), latest);
  remove_leftovers(dir);
  EXPECT_EQ(latest_step(dir), latest);
  save(dir, 2);
  EXPECT_EQ(latest_step(dir), 2);
  EXPECT_EQ(names_in(dir), (std::set<std::string>{"step-000001", "step-000002"}));
}

TEST(CheckpointCrash, AfterStaging) {
  const TestFolder folder;
  save(folder.path(), 1);
  static_cast<void>(stage_checkpoint(folder.path(), 2));
  expect_recovery(folder.path(), 1);
}

TEST(CheckpointCrash, AfterEachFile) {
  const TestFolder folder;
  save(folder.path(), 1);
  for (const char* removed : {"ranks", "empty", "nothing"}) {
    const auto staging = stage_checkpoint(folder.path(), 2);
    write_content(staging, 2);
    fs::remove_all(staging / removed);
    EXPECT_EQ(latest_step(folder.path()), 1);
  }
  expect_recovery(folder.path(), 1);
}

TEST(CheckpointCrash, AfterTheManifestBeforeTheRename) {
  const TestFolder folder;
  save(folder.path(), 1);
  const auto whole = save(folder.path(), 2);
  fs::rename(whole.path, folder.path() / "step-000002.tmp");
  expect_recovery(folder.path(), 1);
}

TEST(CheckpointCrash, AfterTheRename) {
  const TestFolder folder;
  save(folder.path(), 1);
  save(folder.path(), 2);
  expect_recovery(folder.path(), 2);
}

TEST(CheckpointCrash, WithinTheReplacementOfTheSameStep) {
  const TestFolder folder;
  save(folder.path(), 1);
  save(folder.path(), 2);
  static_cast<void>(stage_checkpoint(folder.path(), 2));  // before the exchange
  expect_recovery(folder.path(), 2);
  const auto staging = stage_checkpoint(folder.path(), 2);  // after it, the old one half removed
  write_content(staging, 2);
  expect_recovery(folder.path(), 2);
  fs::rename(folder.path() / "step-000002", folder.path() / "step-000002.old.tmp");  // without exchange
  expect_recovery(folder.path(), 1);
}

TEST(CheckpointCrash, WithinPruning) {
  const TestFolder folder;
  save(folder.path(), 0);
  save(folder.path(), 1);
  fs::rename(folder.path() / "step-000000", folder.path() / "step-000000.tmp");
  fs::remove(folder.path() / "step-000000.tmp/weights.bin");
  expect_recovery(folder.path(), 1);
}

TEST(Checkpoint, ReplacesOneOfTheSameStep) {
  const TestFolder folder;
  fs::resize_file(save(folder.path(), 3).path / "weights.bin", 7);
  save(folder.path(), 3);
  EXPECT_EQ(latest_step(folder.path()), 3);
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"step-000003"});
}

TEST(Checkpoint, IsNotCommittedUnlessRecordsAndFilesAgree) {
  const TestFolder folder;
  const auto staging = stage_checkpoint(folder.path(), 1);
  auto files = write_content(staging, 1);
  const auto commit = [&] { static_cast<void>(commit_checkpoint(folder.path(), 1, files)); };
  files.pop_back();
  EXPECT_THROW(commit(), Error);  // one file not recorded
  files.push_back(record_file(staging, "empty"));
  files.push_back(files.back());
  EXPECT_THROW(commit(), Error);  // one twice
  files.back().name = "absent";
  EXPECT_THROW(commit(), Error);
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"step-000001.tmp"});
  files.pop_back();
  commit();
  EXPECT_EQ(latest_step(folder.path()), 1);
  EXPECT_THROW(static_cast<void>(commit_checkpoint(folder.path(), 2, files)), Error);  // not staged
}

TEST(Checkpoint, RefusesNamesThatLeaveTheFolder) {
  const TestFolder folder;
  const auto staging = stage_checkpoint(folder.path(), 1);
  for (const char* name : {"", "..", "../x", "/x", "a/../../x", "a/", "./a", "manifest.json"}) {
    EXPECT_THROW(static_cast<void>(write_file(staging, name, [](const fs::path&) {})), Error) << name;
  }
  EXPECT_THROW(static_cast<void>(record_file(staging, "absent")), Error);
}

TEST(Checkpoint, LetsTheErrorOfAWriterThrough) {
  const TestFolder folder;
  const auto staging = stage_checkpoint(folder.path(), 1);
  EXPECT_THROW(static_cast<void>(write_file(staging, "a", [](const fs::path&) { fail("disk full"); })),
               Error);
  EXPECT_EQ(latest_step(folder.path()), -1);
}

TEST(Prune, KeepsTheNewestUpToTheStepJustSaved) {
  const TestFolder folder;
  for (const std::int64_t step : {10, 20, 30, 40, 90}) {
    save(folder.path(), step);
  }
  prune_checkpoints(folder.path(), 0, 40);
  EXPECT_EQ(names_in(folder.path()).size(), 5U);
  prune_checkpoints(folder.path(), 2, 40);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-000030", "step-000040", "step-000090"}));
  prune_checkpoints(folder.path(), 5, 40);
  EXPECT_EQ(names_in(folder.path()).size(), 3U);
}

TEST(Prune, CountsOnlyCheckpointsThatVerify) {
  const TestFolder folder;
  for (const std::int64_t step : {3, 6, 9}) {
    save(folder.path(), step);
  }
  fs::resize_file(folder.path() / "step-000009/weights.bin", 1000);
  // A run that went on from 6: 9 is damaged, and must not cost 6 its place.
  save(folder.path(), 11);
  const LogCapture log;
  prune_checkpoints(folder.path(), 2, 11);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-000006", "step-000009", "step-000011"}));
  EXPECT_NE(log.text().find("step-000009 is damaged"), std::string::npos) << log.text();
  // A changed byte counts as damage too.
  std::ofstream(folder.path() / "step-000006/weights.bin", std::ios::in | std::ios::binary) << 'X';
  save(folder.path(), 12);
  prune_checkpoints(folder.path(), 2, 12);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-000011", "step-000012"}));
  // All but the newest damaged: nothing that may still be repaired is lost.
  fs::resize_file(folder.path() / "step-000011/weights.bin", 0);
  fs::resize_file(folder.path() / "step-000012/weights.bin", 0);
  save(folder.path(), 13);
  prune_checkpoints(folder.path(), 2, 13);
  EXPECT_EQ(names_in(folder.path()).size(), 3U);
}

TEST(Leftovers, AreOnlyStagingFolders) {
  const TestFolder folder;
  save(folder.path(), 1);
  static_cast<void>(stage_checkpoint(folder.path(), 2));
  folder.write("step-3.tmp", "a file");
  folder.write("notes.tmp/a", "a user's");
  folder.write("elsewhere/a", "behind a link");
  fs::create_directory_symlink(folder.path() / "elsewhere", folder.path() / "step-000004.tmp");
  remove_leftovers(folder.path());
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-000001", "step-3.tmp", "notes.tmp",
                                                            "elsewhere", "step-000004.tmp"}));
  EXPECT_TRUE(fs::exists(folder.path() / "elsewhere/a"));
  remove_leftovers(folder.path() / "absent");
}

}  // namespace
}  // namespace expedite::train
