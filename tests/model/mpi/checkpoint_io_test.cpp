// Weights and optimizer state through files, between layouts and shard sizes.
#include "expedite/model/checkpoint_io.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "expedite/comm/collectives.h"
#include "tests/model/mpi/rig.h"
#include "tests/model/temporary_folder.h"

namespace expedite::model::tests {
namespace {

namespace fs = std::filesystem;

/// A folder of rank 0's that all ranks know.
class SharedFolder {
 public:
  explicit SharedFolder(const comm::Communicator& world)
      : world_(world), path_(comm::broadcast_text(world, folder_.path().string(), 0)) {}
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  ~SharedFolder() { comm::barrier(world_); }  // nobody reads any more

  [[nodiscard]] fs::path subfolder(const std::string& name) const {
    if (world_.rank() == 0) {
      fs::create_directory(path_ / name);
    }
    comm::barrier(world_);
    return path_ / name;
  }

 private:
  const comm::Communicator& world_;
  TemporaryFolder folder_;
  fs::path path_;
};

ModelConfig config_with_everything() {
  return tiny_config({{"mlp_only_layers", {0}},
                      {"attention_bias", true},
                      {"scoring_func", "sigmoid"},
                      {"moe_router_enable_expert_bias", true}});
}

constexpr StateTensor kKept[] = {StateTensor::weight, StateTensor::master, StateTensor::exp_avg,
                                 StateTensor::exp_avg_sq};

/// Two steps of training, so that every tensor that a checkpoint keeps has values of its own.
void train_a_little(Rig& rig) {
  rig.parameters().initialize(31);
  for (int step = 1; step <= 2; ++step) {
    StepOptions options;
    options.bias_update_rate = 0.125 * step;
    options.adamw.step = step;
    rig.step(TinyBatch({{1, 2, 3, 4, 5}, {6, 7, 8}, {9, 10, 11}}, rig.grid().size()), options, true);
  }
}

/// What a file of bf16 weights keeps: the router's, f32 in a model, are rounded too.
Tensors in_bf16(Tensors tensors) {
  for (auto& [name, values] : tensors) {
    if (!name.ends_with("bias")) {  // selection biases stay f32, the others are bf16 already
      std::transform(values.begin(), values.end(), values.begin(),
                     [](float value) { return static_cast<float>(bf16(value)); });
    }
  }
  return tensors;
}

class CheckpointIo : public testing::TestWithParam<std::int64_t> {};  // bytes of a shard at most

TEST_P(CheckpointIo, RestoresEveryTensorInEveryOtherLayout) {
  const auto world = comm::Communicator::world();
  const SharedFolder folder(world);
  for (const int saved : divisors(world.size())) {
    Rig source(config_with_everything(), DType::bf16, world, saved);
    train_a_little(source);
    std::map<StateTensor, Tensors> expected;
    std::map<StateTensor, fs::path> folders;
    for (const StateTensor which : kKept) {
      folders[which] = folder.subfolder(fmt::format("ep{}-{}", saved, static_cast<int>(which)));
      std::int64_t files = 0;
      save_tensors(
          source.parameters(), which, source.grid(), folders[which],
          [&](const fs::path& file, const WrittenFile& written) {
            EXPECT_EQ(fs::file_size(file), static_cast<std::uintmax_t>(written.bytes));
            ++files;
          },
          GetParam());
      comm::barrier(world);
      EXPECT_EQ(files > 0, world.rank() == 0);
      EXPECT_EQ(fs::exists(folders[which] / kIndexFileName), GetParam() < 100'000);
      expected[which] = source.gather(which);
    }
    for (const int loaded : divisors(world.size())) {
      SCOPED_TRACE(fmt::format("saved with EP {}, loaded with EP {}", saved, loaded));
      Rig restored(config_with_everything(), DType::bf16, world, loaded);
      load_weights(restored.parameters(), SafetensorsFolder(folders[StateTensor::weight]));
      EXPECT_TRUE(restored.gather(StateTensor::weight) == in_bf16(expected[StateTensor::weight]));
      for (const StateTensor which : {StateTensor::master, StateTensor::exp_avg, StateTensor::exp_avg_sq}) {
        load_tensors(restored.parameters(), which, SafetensorsFolder(folders[which]));
        EXPECT_TRUE(restored.gather(which) == expected[which]) << static_cast<int>(which);
      }
      EXPECT_TRUE(restored.gather(StateTensor::weight) == expected[StateTensor::weight]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ShardBytes, CheckpointIo, testing::Values(1, 5'000, kMaxShardBytes));

TEST(CheckpointIoBiases, EveryRankReadsAllSelectionBiases) {
  const auto world = comm::Communicator::world();
  const SharedFolder folder(world);
  const fs::path weights = folder.subfolder("weights");
  Rig source(config_with_everything(), DType::f32, world, world.size());
  train_a_little(source);
  save_tensors(source.parameters(), StateTensor::weight, source.grid(), weights,
               [](const auto&, const auto&) {});
  comm::barrier(world);
  Rig restored(config_with_everything(), DType::f32, world, world.size());
  load_weights(restored.parameters(), SafetensorsFolder(weights));
  const std::vector<float>& bias = source.parameters().layer(1).moe.selection_bias;
  EXPECT_NE(bias, std::vector<float>(bias.size(), 0.0F));
  EXPECT_EQ(restored.parameters().layer(1).moe.selection_bias, bias);
}

}  // namespace
}  // namespace expedite::model::tests
