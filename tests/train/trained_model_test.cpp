#include "expedite/train/trained_model.h"

#include <gtest/gtest.h>

#include <set>

#include "expedite/base/durable_file.h"
#include "expedite/base/error.h"
#include "tests/error_of.h"
#include "tests/test_folder.h"

namespace expedite::train {
namespace {

namespace fs = std::filesystem;

/// A checkpoint of a run as training writes it, its contents made up.
Checkpoint save(const fs::path& run, std::int64_t step) {
  const fs::path dir = run / "checkpoints";
  const fs::path staging = stage_checkpoint(dir, step);
  std::vector<FileRecord> files;
  for (const char* name : {"config.json", "model-00001-of-00002.safetensors",
                           "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                           "tokenizer.json", "training_state.json", "optimizer/exp_avg/model.safetensors"}) {
    files.push_back(write_file(
        staging, name, [&](const fs::path& file) { std::ofstream(file) << name << " of step " << step; }));
  }
  return commit_checkpoint(dir, step, files);
}

std::set<std::string> names_in(const fs::path& dir) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) {
    names.insert(entry.path().filename());
  }
  return names;
}

TEST(FindCheckpoint, TakesARunAFolderOfCheckpointsOrOne) {
  const TestFolder folder;
  const fs::path run = folder.path() / "runs/mine";
  save(run, 5);
  const Checkpoint newest = save(run, 10);
  EXPECT_EQ(find_checkpoint(run).step, 10);
  EXPECT_EQ(find_checkpoint(run / "").step, 10);
  EXPECT_EQ(find_checkpoint(run / "checkpoints").step, 10);
  EXPECT_EQ(find_checkpoint(run / "checkpoints/step-000005").step, 5);
  EXPECT_EQ(find_checkpoint(run / "checkpoints/step-000005/").step, 5);
  fs::resize_file(newest.path / "config.json", 3);
  EXPECT_EQ(find_checkpoint(run).step, 5);
  EXPECT_NE(error_of([&] { static_cast<void>(find_checkpoint(newest.path)); }).find("has 3 bytes"),
            std::string::npos);
  EXPECT_NE(error_of([&] { static_cast<void>(find_checkpoint(folder.path())); }).find("neither a checkpoint"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { static_cast<void>(find_checkpoint(folder.path() / "absent")); }).find("does not exist"),
      std::string::npos);
}

TEST(Export, WritesTheModelWithoutItsTraining) {
  const TestFolder folder;
  const Checkpoint checkpoint = save(folder.path() / "run", 7);
  const fs::path out = folder.path() / "out";
  fs::create_directories(folder.path() / "out.tmp/left by a crash");
  export_model(checkpoint, out);
  EXPECT_EQ(names_in(out), (std::set<std::string>{"config.json", "model-00001-of-00002.safetensors",
                                                  "model-00002-of-00002.safetensors",
                                                  "model.safetensors.index.json", "tokenizer.json"}));
  EXPECT_EQ(read_text(out / "tokenizer.json"), "tokenizer.json of step 7");
  EXPECT_FALSE(fs::exists(folder.path() / "out.tmp"));
  // A folder that is there must be empty.
  const std::string error = error_of([&] { export_model(checkpoint, out); });
  EXPECT_NE(error.find("is there already, and not empty"), std::string::npos) << error;
  fs::create_directories(folder.path() / "empty");
  export_model(checkpoint, folder.path() / "empty/");
  EXPECT_EQ(names_in(folder.path() / "empty"), names_in(out));
}

TEST(Export, LeavesNothingWhenItCannot) {
  const TestFolder folder;
  const Checkpoint checkpoint = save(folder.path() / "run", 7);
  // Damaged after it was verified.
  std::ofstream(checkpoint.path / "tokenizer.json") << "tokenizer.json of step 8";
  const std::string error = error_of([&] { export_model(checkpoint, folder.path() / "out"); });
  EXPECT_NE(error.find("tokenizer.json"), std::string::npos) << error;
  EXPECT_FALSE(fs::exists(folder.path() / "out"));
}

TEST(ConfigOfModel, TakesTheRunsWithItsNewestWeights) {
  const TestFolder folder;
  const fs::path run = folder.path() / "runs/mine";
  const Checkpoint five = save(run, 5);
  const Checkpoint ten = save(run, 10);
  folder.write("runs/mine/config.yaml",
               "name: mine\nseed: 3\noutput_dir: " + (folder.path() / "runs").string() +
                   "\nmodel: {config: {hidden_size: 8}}\ndata: {path: text}\n");
  const std::vector<std::string> none;
  for (const auto& [path, weights] : std::vector<std::pair<fs::path, fs::path>>{
           {run, ten.path}, {five.path, five.path}, {run / "config.yaml", ten.path}}) {
    const TrainConfig config = config_of_model(path, none);
    EXPECT_EQ(config.model.path, weights);
    EXPECT_TRUE(config.model.load_weights);
    EXPECT_TRUE(config.model.config.empty());
    EXPECT_EQ(config.seed, 3);
  }
  EXPECT_EQ(config_of_model(run, std::vector<std::string>{"seed=4"}).seed, 4);
  // A model that is in no run.
  const fs::path exported = folder.path() / "exported";
  export_model(ten, exported);
  const TrainConfig config = config_of_model(exported, std::vector<std::string>{"data.path=text"});
  EXPECT_EQ(config.model.path, exported);
  EXPECT_NE(
      error_of([&] { static_cast<void>(config_of_model(exported, none)); }).find("data.path is missing"),
      std::string::npos);
  // A configuration that loads weights is what it says; one without weights says nothing.
  const fs::path tune =
      folder.write("tune.yaml", "model: {path: base, load_weights: true}\ndata: {path: text}\n");
  EXPECT_EQ(config_of_model(tune, none).model.path, "base");
  const fs::path fresh = folder.write("fresh.yaml", "name: fresh\noutput_dir: " + folder.path().string() +
                                                        "\nmodel: {path: base}\ndata: {path: text}\n");
  EXPECT_NE(error_of([&] { static_cast<void>(config_of_model(fresh, none)); }).find("names no weights"),
            std::string::npos);
}

}  // namespace
}  // namespace expedite::train
