#include "expedite/train/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "expedite/base/error.h"
#include "expedite/train/config_schema.h"

namespace expedite::train {
namespace {

using Overrides = std::vector<std::string>;

constexpr std::string_view kSmallest = "model: {path: some/model}\ndata: {path: text}\n";

std::string error_of(std::string_view yaml, const Overrides& overrides = {}) {
  try {
    static_cast<void>(parse_config(yaml, "job.yaml", overrides));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// The error of `yaml` put after a configuration that is complete. Its first line is line 3.
std::string error_after(const std::string& yaml, const Overrides& overrides = {}) {
  return error_of(std::string(kSmallest) + yaml, overrides);
}

TrainConfig parse_with(const Overrides& overrides) {
  return parse_config(kSmallest, "job.yaml", overrides);
}

TEST(Config, TakesDefaultsForWhatIsNotGiven) {
  TrainConfig expected;
  expected.model.path = "some/model";
  expected.data.path = {"text"};
  EXPECT_EQ(parse_config(kSmallest, "job.yaml"), expected);
}

TEST(Config, ReadsEveryTypeOfField) {
  const auto config = parse_config(R"(
name: 2024          # a name may look like a number
seed: 7
dtype: f32
model:
  path: "some/model"
  load_weights: true
parallel:
  expert_parallel_size: 4
  ep_plan: {dispatcher: alltoall, moe_num_chunks: 1}
moe: {router_load_balancing_type: bias, z_loss_coeff: 1e-3}
data:
  path: [a, 'b c']
  extensions: [.pod, txt]
optimizer: {lr: 1, eps: 1.0E-9, warmup_steps: 0x10}
)",
                                   "job.yaml");
  EXPECT_EQ(config.name, "2024");
  EXPECT_EQ(config.seed, 7);
  EXPECT_EQ(config.dtype, DType::f32);
  EXPECT_TRUE(config.model.load_weights);
  EXPECT_EQ(config.parallel.expert_parallel_size, 4);
  EXPECT_EQ(config.parallel.ep_plan.moe_num_chunks.chunks, 1);
  EXPECT_EQ(config.moe.router_load_balancing_type, LoadBalancing::bias);
  EXPECT_EQ(config.moe.z_loss_coeff, 1e-3);
  EXPECT_EQ(config.data.path, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(config.data.extensions, (std::vector<std::string>{".pod", "txt"}));
  EXPECT_EQ(config.optimizer.lr, 1.0);
  EXPECT_EQ(config.optimizer.eps, 1e-9);
  EXPECT_EQ(config.optimizer.warmup_steps, 16);
  EXPECT_EQ(config.run_dir(), "runs/2024");
}

TEST(Config, KeepsTheTypesOfAnInlineModel) {
  const auto config = parse_config(R"(
model:
  config:
    model_type: qwen3_moe
    hidden_size: 128
    rms_norm_eps: 1e-06
    rope_theta: 10000.0
    norm_topk_prob: true
    sliding_window: null
    mlp_only_layers: [0, 3]
    quoted: "128"
    rope_scaling: {type: yarn, factor: 4.0}
data: {path: text}
)",
                                   "job.yaml");
  const auto expected = nlohmann::json::parse(R"({"model_type": "qwen3_moe", "hidden_size": 128,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "norm_topk_prob": true, "sliding_window": null,
    "mlp_only_layers": [0, 3], "quoted": "128", "rope_scaling": {"type": "yarn", "factor": 4.0}})");
  EXPECT_EQ(config.model.config, expected);
  EXPECT_TRUE(config.model.config["hidden_size"].is_number_integer());
  EXPECT_TRUE(config.model.config["rope_theta"].is_number_float());
}

TEST(Config, AppliesOverridesInOrder) {
  const auto config = parse_with({"train.steps=5", "train.steps=6", "data.path=[x, y]", "name=a=b",
                                  "optimizer={lr: 0.5, min_lr: 0.25}", "model.path=\"\"",
                                  "model.config={hidden_size: 64, layer_types: [a]}",
                                  "model.config.hidden_size=128", "model.config.rope_scaling.factor=2.5"});
  EXPECT_EQ(config.train.steps, 6);
  EXPECT_EQ(config.data.path, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(config.name, "a=b");
  EXPECT_EQ(config.optimizer.lr, 0.5);
  EXPECT_EQ(config.optimizer.min_lr, 0.25);
  EXPECT_EQ(config.model.config, nlohmann::json::parse(R"({"hidden_size": 128, "layer_types": ["a"],
    "rope_scaling": {"factor": 2.5}})"));
}

TEST(Config, NamesTheNearestOfAnUnknownKey) {
  EXPECT_EQ(error_after("train:\n  stpes: 3\n"),
            "job.yaml:4: unknown key train.stpes; the nearest known key is train.steps");
  EXPECT_EQ(error_after("lr: 3\n"), "job.yaml:3: unknown key lr; the nearest known key is optimizer.lr");
  EXPECT_EQ(error_after("optimiser: {lr: 3}\n"),
            "job.yaml:3: unknown key optimiser; the nearest known key is optimizer");
  EXPECT_EQ(error_after("", {"data.seqlength=3"}),
            "--set data.seqlength=3: unknown key data.seqlength; the nearest known key is data.seq_length");
  EXPECT_EQ(error_after("", {"train.steps.x=3"}),
            "--set train.steps.x=3: unknown key train.steps.x; the nearest known key is train.steps");
}

TEST(Config, SaysWhatIsLegalForAWrongValue) {
  EXPECT_EQ(error_after("train: {steps: many}\n"),
            "job.yaml:3: train.steps = many: expected an integer in [1, 2147483647]");
  EXPECT_EQ(error_after("train:\n\n  steps: 0\n"),
            "job.yaml:5: train.steps = 0: expected an integer in [1, 2147483647]");
  EXPECT_EQ(error_after("train: {steps: 1.5}\n"),
            "job.yaml:3: train.steps = 1.5: expected an integer in [1, 2147483647]");
  EXPECT_EQ(error_after("train: {steps: \"3\"}\n"),
            "job.yaml:3: train.steps = 3: expected an integer in [1, 2147483647]");
  EXPECT_EQ(error_after("train: {steps: 99999999999999999999}\n"),
            "job.yaml:3: train.steps = 99999999999999999999: expected an integer in [1, 2147483647]");
  EXPECT_EQ(error_after("", {"train.steps="}),
            "--set train.steps=: train.steps = null: expected an integer in [1, 2147483647]");
  EXPECT_EQ(error_after("optimizer: {beta1: 1.0}\n"),
            "job.yaml:3: optimizer.beta1 = 1.0: expected a number in [0, 1)");
  EXPECT_EQ(error_after("optimizer: {lr: 0}\n"),
            "job.yaml:3: optimizer.lr = 0: expected a number in (0, 1000]");
  EXPECT_EQ(error_after("optimizer: {lr: .nan}\n"),
            "job.yaml:3: optimizer.lr = .nan: expected a number in (0, 1000]");
  EXPECT_EQ(error_after("dtype: fp16\n"), "job.yaml:3: dtype = fp16: expected bf16 or f32");
  EXPECT_EQ(error_after("parallel: {ep_plan: {dispatcher: allgather}}\n"),
            "job.yaml:3: parallel.ep_plan.dispatcher = allgather: expected alltoall, zero_redundancy, "
            "hierarchical, "
            "hierarchical_dedup or auto");
  EXPECT_EQ(
      error_after("moe: {router_load_balancing_type: [a]}\n"),
      "job.yaml:3: moe.router_load_balancing_type = [\"a\"]: expected aux_loss, seq_aux_loss, none or bias");
  EXPECT_EQ(error_after("", {"model.load_weights=1"}),
            "--set model.load_weights=1: model.load_weights = 1: expected true or false");
  EXPECT_EQ(error_after("", {"data.extensions={a: b}"}),
            "--set data.extensions={a: b}: data.extensions = {\"a\":\"b\"}: expected a string or a list of "
            "strings");
  EXPECT_EQ(error_after("name: [a]\n"), "job.yaml:3: name = [\"a\"]: expected a string");
  EXPECT_EQ(error_after("train: 3\n"), "job.yaml:3: train = 3: expected a map of its keys");
  EXPECT_EQ(error_after("", {"model.config=3"}), "--set model.config=3: model.config = 3: expected a map");
}

TEST(Config, RefusesDuplicateKeys) {
  EXPECT_EQ(error_after("seed: 1\nseed: 2\n"), "job.yaml:4: the key seed is there twice; keep one");
  EXPECT_EQ(error_after("train: {steps: 1,\n  steps: 2}\n"),
            "job.yaml:4: the key train.steps is there twice; keep one");
  EXPECT_EQ(error_of("data: {path: t}\nmodel:\n  config:\n    a: 1\n    a: 2\n"),
            "job.yaml:5: the key a is there twice; keep one");
}

TEST(Config, RefusesDottedKeysInAFile) {
  EXPECT_EQ(error_after("train.steps: 3\n"),
            "job.yaml:3: the key train.steps has dots: put it inside its section, one level of indentation "
            "per dot");
}

TEST(Config, RefusesWhatIsNotAYamlMap) {
  EXPECT_NE(error_of("a: [1\nb: 2\n").find("job.yaml:"), std::string::npos);
  EXPECT_NE(error_of("a: [1\nb: 2\n").find("not valid YAML"), std::string::npos);
  EXPECT_NE(error_of("- a\n").find("job.yaml:1: expected a map of keys"), std::string::npos);
  EXPECT_NE(error_of("? [a]\n: b\n").find("a key must be a name"), std::string::npos);
  EXPECT_NE(error_of("seed: 1\n---\nseed: 2\n").find("more follows the first"), std::string::npos);
  // The parser makes nothing of these and stays where it is.
  for (const char* nothing : {",", ",seed: 1\n", "}", "]"}) {
    EXPECT_NE(error_of(nothing), "") << nothing;
  }
  EXPECT_NE(error_of(std::string(100'000, '[')).find("not valid YAML"), std::string::npos);
  EXPECT_NE(error_of("model: {config: &a {b: *a}}\n").find("nested too deeply"), std::string::npos);
  std::string bomb = "model:\n  config:\n    a0: &a0 [x, x]\n";
  for (int i = 1; i < 40; ++i) {
    bomb += "    a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) +
            ", *a" + std::to_string(i - 1) + "]\n";
  }
  EXPECT_NE(error_of(bomb).find("too large"), std::string::npos);
}

TEST(Config, RefusesBadOverrides) {
  EXPECT_EQ(error_after("", {"train.steps"}), "--set train.steps: expected key=value");
  EXPECT_EQ(error_after("", {"=3"}), "--set =3: expected key=value");
  EXPECT_NE(error_after("", {"data.path=[a"}).find("--set data.path=[a: not valid YAML"), std::string::npos);
  EXPECT_NE(error_after("", {"model.config..a=3"}).find("empty part"), std::string::npos);
  EXPECT_NE(error_after("", {"model.config.a=3", "model.config.a.b=3"}).find("a is 3, not a map"),
            std::string::npos);
}

TEST(Config, RefusesContradictions) {
  EXPECT_NE(error_of("data: {path: t}\n").find("no model"), std::string::npos);
  EXPECT_NE(error_of("model: {path: m}\n").find("data.path is missing"), std::string::npos);
  EXPECT_NE(error_after("", {"model.config.hidden_size=3"}).find("both given"), std::string::npos);
  EXPECT_NE(
      error_of("data: {path: t}\nmodel: {config: {a: 1}, load_weights: true}\n").find("needs model.path"),
      std::string::npos);
  EXPECT_NE(error_after("", {"train.global_batch_size=6", "train.micro_batch_size=4"}).find("not a multiple"),
            std::string::npos);
  EXPECT_NE(error_after("", {"optimizer.min_lr=1"}).find("optimizer.min_lr = 1 is greater"),
            std::string::npos);
  for (const char* name :
       {"name=a/b", "name=..", "name=''", "output_dir=''", "data.path=''"}) {
    EXPECT_NE(error_after("", {name}), "no error") << name;
  }
}

TEST(Config, ReadsTheExpertParallelPlan) {
  const TrainConfig::EpPlan plan =
      parse_with({"parallel.ep_plan={dispatcher: auto, moe_num_chunks: 4, moe_chunk_size: 64, "
                  "moe_chunk_pipeline: pairwise, moe_chunk_window: 3, chunk_moe_recompute: true}"})
          .parallel.ep_plan;
  EXPECT_EQ(plan.dispatcher, Dispatcher::automatic);
  EXPECT_EQ(plan.moe_num_chunks.chunks, 4);
  EXPECT_EQ(plan.moe_chunk_size, 64);
  EXPECT_EQ(plan.moe_chunk_pipeline, schedule::ChunkPipeline::pairwise);
  EXPECT_EQ(plan.moe_chunk_window, 3);
  EXPECT_EQ(plan.chunk_moe_recompute, schedule::MoeRecompute::activation);
  EXPECT_EQ(parse_with({"parallel.ep_plan.chunk_moe_recompute=full"}).parallel.ep_plan.chunk_moe_recompute,
            schedule::MoeRecompute::full);
  EXPECT_NE(error_after("", {"parallel.ep_plan.moe_num_chunks=2000"}).find("in [0, 1024], or auto"),
            std::string::npos);
  EXPECT_NE(error_after("", {"parallel.ep_plan.moe_chunk_window=0"}), "no error");
  EXPECT_NE(error_after("", {"parallel.ep_plan.moe_chunk_pipeline=fast"}), "no error");
}

TEST(Config, WritesAndReadsAgainTheSame) {
  auto config = parse_with({"name='true'", "seed=9007199254740993", "output_dir='a \"b\" \\ c: #d'",
                            "data.path=[\"x\\ny\", '- z', é, '0x1', '~', 'ok']", "optimizer.lr=0.1",
                            "optimizer.eps=1e-300", "train.max_minutes=1e-22", "dtype=f32",
                            "data.extensions=[]", "moe.router_load_balancing_type=seq_aux_loss"});
  config.model.path = "";
  config.model.config =
      nlohmann::json::parse(R"({"a": 1, "b": 1.0, "c": 1e-6, "d": "1", "e": null, "f": [true, "no"],
    "g": {"h": [], "i": {}}, "1": "x: y", "big": 18446744073709551615, "ctl": "\u0001\t\u007f\ud83d\ude00"})");
  const auto again = parse_config(to_yaml(config), "config.yaml");
  EXPECT_EQ(again, config) << to_yaml(config);
  EXPECT_TRUE(again.model.config["b"].is_number_float());
  EXPECT_EQ(to_yaml(again), to_yaml(config));
}

TEST(Config, HasEveryFieldInItsReferenceOnce) {
  const std::string reference = config_reference();
  std::set<std::string_view> keys;
  TrainConfig config;
  std::set<const void*> slots;
  for (const Field& field : schema()) {
    EXPECT_TRUE(keys.insert(field.key).second) << field.key;
    const void* slot = std::visit([](auto* value) -> const void* { return value; }, field.slot(config));
    EXPECT_TRUE(slots.insert(slot).second) << field.key;
    EXPECT_NE(reference.find(fmt::format("| `{}` |", field.key)), std::string::npos) << field.key;
    EXPECT_FALSE(field.help.empty()) << field.key;
  }
  EXPECT_NE(reference.find("| `optimizer.beta1` | `0.9` | a number in [0, 1) |"), std::string::npos)
      << reference;
}

TEST(Config, MeansTheSameAnywhereWithAbsolutePaths) {
  const auto here = std::filesystem::current_path();
  const TrainConfig config = with_absolute_paths(
      parse_with({"data.path=[text, /data/more, ./a/../b]", "data.tokenizer=bytes", "output_dir=runs"}));
  EXPECT_EQ(config.model.path, here / "some/model");
  EXPECT_EQ(config.data.path, (std::vector<std::string>{here / "text", "/data/more", here / "b"}));
  EXPECT_EQ(config.data.tokenizer, "bytes");
  EXPECT_EQ(config.output_dir, here / "runs");
  EXPECT_EQ(with_absolute_paths(config), config);
}

TEST(Config, ReadsAFile) {
  const auto file = std::filesystem::path(testing::TempDir()) / "expedite-config-test.yaml";
  std::ofstream(file) << kSmallest << "train: {stepz: 1}\n";
  try {
    static_cast<void>(read_config(file));
    FAIL() << "an unknown key was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(),
              file.string() + ":3: unknown key train.stepz; the nearest known key is train.steps");
  }
  std::ofstream(file) << kSmallest;
  EXPECT_EQ(read_config(file, Overrides{"seed=3"}).seed, 3);
  std::filesystem::remove(file);
  EXPECT_THROW(static_cast<void>(read_config(file)), Error);
  EXPECT_THROW(static_cast<void>(read_config(testing::TempDir())), Error);
}

}  // namespace
}  // namespace expedite::train
