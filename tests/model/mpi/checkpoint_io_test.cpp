// Weights and optimizer state through files, between layouts and shard sizes.
#include "expedite/model/checkpoint_io.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "expedite/comm/collectives.h"
#include "tests/model/mpi/rig.h"
#include "tests/temporary_folder.h"

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

std::vector<ModelConfig> every_kind() {
  return {config_with_everything(),
          tiny_config({{"model_type", "qwen2_moe"}, {"shared_expert_intermediate_size", 10}}),
          tiny_config({{"model_type", "dots1"},
                       {"n_routed_experts", 6},
                       {"n_shared_experts", 2},
                       {"n_group", 3},
                       {"first_k_dense_replace", 1}}),
          tiny_config({{"model_type", "gpt_oss"}, {"num_local_experts", 5}}),
          tiny_config({{"model_type", "deepseek_v2"},
                       {"num_key_value_heads", 2},
                       {"q_lora_rank", 6},
                       {"kv_lora_rank", 5},
                       {"qk_nope_head_dim", 3},
                       {"qk_rope_head_dim", 4},
                       {"v_head_dim", 5},
                       {"n_routed_experts", 5},
                       {"attention_bias", true}})};
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

/// What a file of bf16 weights keeps: those of routers, f32 in a model, are rounded too.
Tensors in_bf16(Tensors tensors) {
  for (auto& [name, values] : tensors) {
    if (!name.ends_with("e_score_correction_bias")) {  // stays f32
      std::transform(values.begin(), values.end(), values.begin(),
                     [](float value) { return static_cast<float>(bf16(value)); });
    }
  }
  return tensors;
}

/// Where each kind of tensor was saved, and what it was.
struct Saved {
  std::map<StateTensor, fs::path> folders;
  std::map<StateTensor, Tensors> tensors;
};

Saved save(Rig& source, const SharedFolder& folder, std::int64_t max_shard_bytes) {
  Saved saved;
  for (const StateTensor which : kKept) {
    saved.folders[which] =
        folder.subfolder(fmt::format("ep{}-{}-{}", source.grid().layout().expert_parallel_size(),
                                     static_cast<int>(which), max_shard_bytes));
    std::int64_t files = 0;
    save_tensors(
        source.parameters(), which, source.grid(), saved.folders[which],
        [&](const fs::path& file, const hf::WrittenFile& written) {
          EXPECT_EQ(fs::file_size(file), static_cast<std::uintmax_t>(written.bytes));
          ++files;
        },
        max_shard_bytes);
    comm::barrier(source.grid().world());
    EXPECT_EQ(files > 0, source.grid().rank() == 0);
    EXPECT_EQ(fs::exists(saved.folders[which] / hf::kIndexFileName), max_shard_bytes < hf::kMaxShardBytes);
    saved.tensors[which] = source.gather(which);
  }
  return saved;
}

void expect_restored(Rig& restored, const Saved& saved) {
  const Tensors& weights = saved.tensors.at(StateTensor::weight);
  load_weights(restored.parameters(), hf::SafetensorsFolder(saved.folders.at(StateTensor::weight)));
  EXPECT_TRUE(restored.gather(StateTensor::weight) == in_bf16(weights));
  for (const StateTensor which : {StateTensor::master, StateTensor::exp_avg, StateTensor::exp_avg_sq}) {
    load_tensors(restored.parameters(), which, hf::SafetensorsFolder(saved.folders.at(which)));
    EXPECT_TRUE(restored.gather(which) == saved.tensors.at(which)) << static_cast<int>(which);
  }
  EXPECT_TRUE(restored.gather(StateTensor::weight) == weights);  // from the masters
}

void expect_restored_in_every_layout(const ModelConfig& config) {
  const comm::Communicator& world = job();
  const SharedFolder folder(world);
  std::map<int, Saved> all;
  for (const int expert_parallel_size : divisors(world.size())) {
    Rig source(config, DType::bf16, grid_of(expert_parallel_size));
    train_a_little(source);
    all[expert_parallel_size] = save(source, folder, 5'000);
  }
  for (const int expert_parallel_size : divisors(world.size())) {
    Rig restored(config, DType::bf16, grid_of(expert_parallel_size));
    for (const auto& [from, saved] : all) {
      SCOPED_TRACE(fmt::format("saved with EP {}, loaded with EP {}", from, expert_parallel_size));
      expect_restored(restored, saved);
    }
  }
}

TEST(CheckpointIo, RestoresEveryTensorInEveryOtherLayout) {
  for (const ModelConfig& config : every_kind()) {
    expect_restored_in_every_layout(config);
  }
}

TEST(CheckpointIo, RestoresFromOneFileAndFromOneFilePerTensor) {
  const comm::Communicator& world = job();
  const SharedFolder folder(world);
  Rig source(config_with_everything(), DType::bf16, grid_of(world.size()));
  train_a_little(source);
  Rig restored(config_with_everything(), DType::bf16, grid_of(1));
  expect_restored(restored, save(source, folder, hf::kMaxShardBytes));
  const fs::path shards = folder.subfolder("shards");
  save_tensors(
      source.parameters(), StateTensor::master, source.grid(), shards, [](const auto&, const auto&) {}, 1);
  comm::barrier(world);
  restored.parameters().initialize(5);
  load_tensors(restored.parameters(), StateTensor::master, hf::SafetensorsFolder(shards));
  EXPECT_TRUE(restored.gather(StateTensor::master) == source.gather(StateTensor::master));
}

TEST(CheckpointIo, GivesEveryRankAllSelectionBiases) {
  for (const ModelConfig& config : every_kind()) {
    if (!config.expert_bias) {
      continue;
    }
    const comm::Communicator& world = job();
    const SharedFolder folder(world);
    const fs::path weights = folder.subfolder("weights");
    Rig source(config, DType::f32, grid_of(world.size()));
    train_a_little(source);
    save_tensors(source.parameters(), StateTensor::weight, source.grid(), weights,
                 [](const auto&, const auto&) {});
    comm::barrier(world);
    Rig restored(config, DType::f32, grid_of(world.size()));
    load_weights(restored.parameters(), hf::SafetensorsFolder(weights));
    const std::vector<float>& bias = source.parameters().layer(1).moe.selection_bias;
    EXPECT_NE(bias, std::vector<float>(bias.size(), 0.0F));
    EXPECT_EQ(restored.parameters().layer(1).moe.selection_bias, bias);
  }
}

}  // namespace
}  // namespace expedite::model::tests
