#include "expedite/plan/launch_flags.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <set>

#include "expedite/plan/builtin_clusters.h"
#include "expedite/plan/pipeline_split.h"
#include "tests/plan/argument_check.h"

namespace expedite::plan {
namespace {

constexpr Workload kWorkload{.seq = 4096, .global_batch = 3072};

/// A model, the machine, and what flags come of a strategy.
struct Case {
  Case(ModelConfig the_model, std::int64_t the_devices, const Workload& workload = kWorkload,
       Precision precision = Precision::bf16)
      : model(std::move(the_model)),
        devices(the_devices),
        machine(make_machine(make_cluster(*find_device_facts("h100"), devices), devices)),
        context(model, machine, workload, precision,
                builtin_calibration().of("H100-80GB", default_software().name), default_software()) {}

  [[nodiscard]] Strategy strategy(const std::string& text) const { return parse_strategy(text, devices); }
  [[nodiscard]] bool legal(const std::string& text) const {
    return !illegal(strategy(text), model, context.workload(), devices);
  }
  [[nodiscard]] std::string flags(Launcher launcher, const std::string& text) const {
    return launch_flags(launcher, context, strategy(text));
  }
  [[nodiscard]] Arguments arguments(Launcher launcher, const std::string& text) const {
    return Arguments(flags(launcher, text));
  }
  /// Why there are none; "" where there are.
  [[nodiscard]] std::string refusal(Launcher launcher, const std::string& text) const {
    try {
      (void)flags(launcher, text);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  ModelConfig model;
  std::int64_t devices;
  Machine machine;
  CostContext context;
};

ModelConfig builtin(const char* name) {
  return *architecture::find_builtin_model(name);
}

/// Layers of which the first `dense` have no experts; none have where `dense` is all of them.
ModelConfig model_of(std::int64_t layers, std::int64_t dense, std::int64_t prediction = 0) {
  ModelConfig model = builtin("deepseek-v3");
  model.layers = layers;
  model.sparse.assign(static_cast<std::size_t>(layers), true);
  std::fill_n(model.sparse.begin(), dense, false);
  model.windowed.assign(static_cast<std::size_t>(layers), false);
  model.prediction_layers = prediction;
  if (dense == layers) {
    model.experts = model.experts_per_token = 0;
  }
  return model;
}

std::vector<std::int64_t> wide(const std::vector<std::int32_t>& values) {
  return {values.begin(), values.end()};
}

TEST(LaunchFlags, SplitEveryNumberOfLayersAsThePlanDid) {
  int uneven = 0;
  for (const std::int64_t layers : {27, 30, 48, 61, 94}) {
    for (const std::int64_t dense : {std::int64_t{0}, std::int64_t{1}, layers}) {
      for (const std::int64_t prediction : {0, 2}) {
        if (prediction > 0 && dense != 1) {
          continue;
        }
        const Case run(model_of(layers, dense, prediction), 64);
        for (const int pp : {1, 2, 4, 8, 16, 32}) {
          for (const int vpp : {1, 2, 3, 4}) {
            const std::string text = "pp=" + std::to_string(pp) + ",vpp=" + std::to_string(vpp);
            if (!run.legal(text)) {
              continue;
            }
            const PipelineSplit split = pipeline_split(run.context, run.strategy(text));
            EXPECT_EQ(std::accumulate(split.layers.begin(), split.layers.end(), 0), layers);
            for (const Launcher launcher : {Launcher::megatron, Launcher::mindspeed}) {
              if (launcher == Launcher::mindspeed && dense == 1 && layers / pp < 2) {
                EXPECT_NE(run.refusal(launcher, text).find("pp"), std::string::npos);
                continue;
              }
              const Arguments args = run.arguments(launcher, text);
              EXPECT_EQ(layers_built(args), wide(split.layers)) << layers << " " << text;
              check_arguments(args, run.devices);
            }
            uneven += split.even() ? 0 : 1;
          }
        }
      }
    }
  }
  EXPECT_GT(uneven, 100);
}

TEST(LaunchFlags, NameTheirSplit) {
  PipelineSplit split{.stages = 4, .virtual_stages = 1, .layers = {7, 8, 8, 7}, .prediction = 1};
  EXPECT_EQ(layout_of(split), "Et*7|(t*8|)*2t*7mL");
  split.layers = {0, 1, 2, 0};
  EXPECT_EQ(layout_of(split), "E|t|tt|mL");
  split = {.stages = 1, .virtual_stages = 1, .layers = {3}};
  EXPECT_EQ(layout_of(split), "EtttL");
}

TEST(LaunchFlags, ReadBackWhatTheyAbbreviate) {
  EXPECT_EQ(unrolled("Et*7|(t*8|)*2t*7mL"), "Ettttttt|tttttttt|tttttttt|tttttttmL");
}

TEST(LaunchFlags, AreAcceptedWhateverTheStrategy) {
  const Case run(builtin("qwen3-30b-a3b"), 64);
  int accepted = 0;
  for (const char* shape : {"", "tp=2,", "tp=4,cp=2,", "pp=4,", "pp=8,vpp=2,", "tp=2,pp=4,vpp=3,"}) {
    for (const char* experts : {"", "ep=4,", "ep=8,etp=2,", "ep=8,dispatcher=hierarchical_dedup,"}) {
      for (const char* zero : {"zero=0,", "zero=1,", "zero=2,", "zero=3,"}) {
        for (const char* recompute : {"none", "selective", "moe_act", "half", "full"}) {
          for (const Launcher launcher : {Launcher::megatron, Launcher::mindspeed}) {
            const std::string text = std::string(shape) + experts + zero + "recompute=" + recompute;
            if (!run.legal(text) || !run.refusal(launcher, text).empty()) {
              continue;
            }
            check_arguments(run.arguments(launcher, text), run.devices);
            ++accepted;
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 300);
}

TEST(LaunchFlags, SayWhatIsRecomputed) {
  const Case run(builtin("deepseek-v3"), 1024);
  const auto flags = [&](Launcher launcher, const char* recompute) {
    return run.flags(launcher, std::string("pp=8,ep=32,recompute=") + recompute);
  };
  EXPECT_EQ(flags(Launcher::megatron, "none").find("--recompute"), std::string::npos);
  EXPECT_NE(flags(Launcher::megatron, "moe_act")
                .find("--recompute-granularity selective\n--recompute-modules moe_act\n"),
            std::string::npos);
  EXPECT_NE(flags(Launcher::mindspeed, "moe_act").find("--recompute-activation-function\n"),
            std::string::npos);
  // Of the largest stage half, rounded up.
  const PipelineSplit split = pipeline_split(run.context, run.strategy("pp=8,ep=32,recompute=half"));
  const Arguments half(flags(Launcher::megatron, "half"));
  EXPECT_EQ(half.text("--recompute-method"), "block");
  EXPECT_EQ(half.number("--recompute-num-layers", 0), (split.most_layers() + 1) / 2);
  EXPECT_NE(flags(Launcher::megatron, "full").find("--recompute-method uniform\n--recompute-num-layers 1\n"),
            std::string::npos);
}

TEST(LaunchFlags, ShardWithTheCheckpointFormatThatMegatronDemands) {
  const Case run(builtin("qwen3-30b-a3b"), 16);
  for (const char* zero : {"2", "3"}) {
    const Arguments args = run.arguments(Launcher::megatron, std::string("ep=8,zero=") + zero);
    EXPECT_EQ(args.text("--ckpt-format"), "fsdp_dtensor");
    EXPECT_TRUE(args.has("--use-distributed-optimizer"));
    EXPECT_NE(args.comments().find("CUDA_DEVICE_MAX_CONNECTIONS unset"), std::string::npos);
  }
  EXPECT_NE(run.refusal(Launcher::mindspeed, "ep=8,zero=2").find("zero 2"), std::string::npos);
}

TEST(LaunchFlags, NameTheReleasesThatAcceptThem) {
  const Case run(builtin("qwen3-30b-a3b"), 16);  // 4 key-value heads
  EXPECT_NE(run.arguments(Launcher::megatron, "tp=4").comments().find("core 0.14 to 0.20"),
            std::string::npos);
  EXPECT_NE(run.arguments(Launcher::megatron, "tp=8").comments().find("core 0.16 to 0.20"),
            std::string::npos);
  EXPECT_NE(run.refusal(Launcher::mindspeed, "tp=8").find("4 key-value heads"), std::string::npos);
}

TEST(LaunchFlags, FillDualPipeVUpWithIdleLayers) {
  const Case run(builtin("deepseek-v3"), 1024);
  const Arguments args = run.arguments(Launcher::mindspeed, "pp=8,ep=32,pipeline=dualpipe");
  EXPECT_EQ(args.text("--num-layers"), "64");
  EXPECT_EQ(args.text("--noop-layers"), "61,62,63");
  EXPECT_EQ(layers_built(args), std::vector<std::int64_t>(16, 4));
  check_arguments(args, run.devices);
  EXPECT_EQ(run.arguments(Launcher::mindspeed, "pp=8,ep=32").text("--first-k-dense-replace"), "3");
  EXPECT_EQ(run.arguments(Launcher::megatron, "pp=8,ep=32").text("--moe-layer-freq"), "[0]*3+[1]*58");
}

TEST(LaunchFlags, NameTheFormatOfProducts) {
  const Case fp8(builtin("deepseek-v3"), 1024, kWorkload, Precision::fp8);
  const Arguments args = fp8.arguments(Launcher::megatron, "pp=8,ep=32");
  EXPECT_TRUE(args.has("--bf16"));
  EXPECT_EQ(args.text("--fp8-recipe"), "tensorwise");
}

/// A strategy that breaks one rule, and what it says.
struct Broken {
  const char* rule;
  const char* strategy;
  const char* says;
  ModelConfig model;
  Launcher launcher = Launcher::megatron;
  Precision precision = Precision::bf16;
};

std::vector<Broken> broken_launches() {
  const ModelConfig qwen = builtin("qwen3-30b-a3b");
  const ModelConfig deepseek = builtin("deepseek-v3");
  ModelConfig gpt = model_of(32, 32);
  gpt.positions = 2048;
  ModelConfig gpt_prediction = model_of(32, 32, 1);
  gpt_prediction.positions = 8192;
  ModelConfig tied = deepseek;
  tied.tie_word_embeddings = true;
  ModelConfig alternating = model_of(32, 0);
  alternating.sparse[4] = false;
  constexpr auto kMindSpeed = Launcher::mindspeed;
  return {
      {"schedule", "pp=2,pipeline=zb-h1", "zb-h1", qwen},
      {"schedule of MindSpeed", "pp=2,vpp=2,pipeline=adaptive", "adaptive", qwen, kMindSpeed},
      {"chunks", "ep=8,chunks=2", "chunks", qwen},
      {"dispatcher", "ep=8,dispatcher=zero_redundancy", "zero_redundancy", qwen},
      {"dispatcher of MindSpeed", "ep=8,dispatcher=zero_redundancy", "zero_redundancy", qwen, kMindSpeed},
      {"sharding in MindSpeed", "ep=8,zero=3", "zero 3", qwen, kMindSpeed},
      {"narrow products in MindSpeed", "ep=8", "fp8", qwen, kMindSpeed, Precision::fp8},
      {"experts in fp16", "ep=8", "fp16", qwen, kMindSpeed, Precision::fp16},
      {"heads of keys and values", "tp=8", "key-value heads", qwen, kMindSpeed},
      {"sequence parallelism with experts", "tp=2,sp=0", "sp=0", qwen},
      {"biases of experts", "etp=2,ep=2", "etp 2", builtin("gpt-oss-120b")},
      {"activation of experts", "recompute=moe_act", "experts", model_of(32, 32)},
      {"positions", "", "2048 learned positions", gpt},
      {"prediction with context parallelism", "cp=2", "cp 2", deepseek, kMindSpeed},
      {"prediction with learned positions", "", "rotary", gpt_prediction},
      {"leading dense layers", "", "dense", alternating, kMindSpeed},
      {"dense layers of a stage", "pp=16", "take pp up to 15", deepseek, kMindSpeed},
      {"DualPipeV with context parallelism", "cp=2,pp=4,pipeline=dualpipe", "cp=1", model_of(32, 0),
       kMindSpeed},
      {"DualPipeV with tied embeddings", "pp=4,pipeline=dualpipe", "ties", tied, kMindSpeed},
      {"chunks of DualPipeV", "pp=16,pipeline=dualpipe", "empty", model_of(34, 0), kMindSpeed},
      {"products in 4 bits", "ep=8", "nvfp4", qwen, kMindSpeed, Precision::nvfp4},
  };
}

TEST(LaunchRules, AreBrokenOneByOne) {
  std::set<std::string> tried;
  for (const Broken& broken : broken_launches()) {
    const Case run(broken.model, 64, kWorkload, Precision::bf16);
    const Strategy strategy = run.strategy(broken.strategy);
    EXPECT_EQ(illegal(strategy, run.model, kWorkload, run.devices), std::nullopt) << broken.rule;
    const Launch launch{strategy, run.model, kWorkload, broken.precision};
    EXPECT_EQ(oldest_release(broken.launcher, launch), std::nullopt) << broken.rule;
    EXPECT_NE(why_refused(broken.launcher, launch), "") << broken.rule;
    bool found = false;
    for (const LaunchRule& rule : launch_rules()) {
      if (rule.name == broken.rule) {
        found = true;
        EXPECT_FALSE(rule.met(launch)) << broken.rule;
        EXPECT_NE(rule.refusal(launch).find(broken.says), std::string::npos) << rule.refusal(launch);
      }
    }
    EXPECT_TRUE(found) << broken.rule;
    tried.insert(broken.rule);
  }
  for (const LaunchRule& rule : launch_rules()) {
    EXPECT_TRUE(tried.contains(std::string(rule.name))) << rule.name;
  }
}

TEST(LaunchRules, KeepTheSearchToWhatTheProgramCanRun) {
  const Case run(builtin("qwen3-30b-a3b"), 16);
  for (const Launcher launcher : {Launcher::megatron, Launcher::mindspeed}) {
    SearchSpace space = default_space(run.context, run.devices);
    keep_what_it_can(launcher, run.context, space);
    EXPECT_EQ(space.chunks, std::vector<std::int32_t>{1});
    const SearchResult result =
        search(run.context, space, {.devices = run.devices, .top = 50, .memory_limit = 0.0, .progress = {}});
    EXPECT_GT(std::ssize(result.best), 10);
    for (const Candidate& candidate : result.best) {
      const Arguments args(launch_flags(launcher, run.context, candidate.strategy));
      (void)layers_built(args);
      check_arguments(args, run.devices);
    }
  }
}

}  // namespace
}  // namespace expedite::plan
