#include "expedite/plan/strategy.h"

#include <gtest/gtest.h>

#include <string>

#include "expedite/base/error.h"
#include "tests/error_of.h"

namespace expedite::plan {
namespace {

TEST(Strategy, ReadsWhatItWrites) {
  const Strategy strategy = parse_strategy(
      "tp=8,pp=16,vpp=2,ep=32,mb=2,zero=0,chunks=4,recompute=full,pipeline=adaptive,"
      "dispatcher=hierarchical_dedup,sp=0",
      6144);
  EXPECT_EQ(strategy.dp, 48);
  EXPECT_EQ(strategy.pipeline, Pipeline::adaptive);
  EXPECT_FALSE(strategy.sequence_parallel);
  EXPECT_EQ(parse_strategy(to_string(strategy), 6144), strategy);
}

TEST(Strategy, SaysWhichKnobIsWrong) {
  const auto refusal = [](const char* text) { return error_of([&] { (void)parse_strategy(text, 64); }); };
  EXPECT_EQ(refusal("tp=2,ep=2,tp=4"), "strategy: tp is there twice; keep one");
  EXPECT_NE(refusal("tp=0").find("tp=0 must be a whole number from 1"), std::string::npos);
  EXPECT_NE(refusal("tp=8x").find("tp=8x must be"), std::string::npos);
  EXPECT_NE(refusal("tp").find("a knob and its value"), std::string::npos);
  EXPECT_NE(refusal("tpp=8").find("the nearest is tp"), std::string::npos);
  EXPECT_NE(refusal("recompute=some").find("none, selective, moe_act, half or full"), std::string::npos);
  EXPECT_NE(refusal("dispatcher=x").find("zero_redundancy"), std::string::npos);
  EXPECT_NE(refusal("tp=7").find("must divide the 64 devices"), std::string::npos);
  EXPECT_NE(refusal("zero=4").find("from 0 to 3"), std::string::npos);
  EXPECT_NE(refusal("mb=99999999999").find("must be a whole number"), std::string::npos);
}

TEST(Strategy, KnowsWhatCannotBe) {
  const ModelConfig& model = *architecture::find_builtin_model("deepseek-v3");
  const Workload workload{.seq = 4096, .global_batch = 1024};
  const auto why = [&](const char* text, std::int64_t devices = 1024) {
    return illegal(parse_strategy(text, devices), model, workload, devices);
  };
  EXPECT_EQ(why("tp=2,pp=16,ep=32"), std::nullopt);
  EXPECT_EQ(why("tp=3,dp=1"), Illegal::devices);
  EXPECT_EQ(why("tp=256"), Illegal::heads);
  EXPECT_EQ(why("pp=64"), Illegal::layers);
  EXPECT_EQ(why("pp=32,vpp=3"), Illegal::virtual_stages);
  EXPECT_EQ(why("ep=512"), Illegal::experts);
  EXPECT_EQ(why("pp=32,ep=64"), Illegal::expert_group);
  EXPECT_EQ(why("mb=3"), Illegal::batch);
  EXPECT_EQ(why("cp=4096,dp=1", 4096), Illegal::sequence);
  EXPECT_EQ(why("pp=16,vpp=2,mb=2,ep=8"), Illegal::micro_batches);
  EXPECT_EQ(why("pipeline=zb-h1"), Illegal::pipeline);
  EXPECT_EQ(why("pp=16,pipeline=adaptive"), Illegal::pipeline);
  EXPECT_EQ(why("chunks=2"), Illegal::chunks);
  const std::string pairs = "pp=4,vpp=2,ep=8,pipeline=adaptive,recompute=moe_act,chunks=";
  EXPECT_EQ(why((pairs + "2").c_str()), Illegal::chunks);
  EXPECT_EQ(why((pairs + "1").c_str()), std::nullopt);
  EXPECT_EQ(why("dispatcher=zero_redundancy"), Illegal::dispatcher);
  EXPECT_NE(explain(Illegal::experts, parse_strategy("ep=512", 1024), model, workload, 1024).find("128, 256"),
            std::string::npos);
}

}  // namespace
}  // namespace expedite::plan
