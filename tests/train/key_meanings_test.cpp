#include "expedite/train/key_meanings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "expedite/train/config.h"
#include "expedite/train/config_schema.h"

namespace expedite::train {
namespace {

std::string refusal(const std::string& setting) {
  try {
    static_cast<void>(parse_config("", "c.yaml", std::vector<std::string>{setting}));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool is_known(std::string_view key) {
  constexpr std::string_view kModel = "model.config.";  // whose fields are Hugging Face's
  return key.starts_with(kModel) ||
         std::ranges::any_of(schema(), [&](const Field& field) { return field.key == key; });
}

TEST(KeyMeanings, LeadToKeysThatThereAre) {
  for (const KeyMeaning& meaning : key_meanings()) {
    for (const std::string_view key : meaning.keys) {
      EXPECT_TRUE(is_known(key)) << key;
    }
  }
}

TEST(KeyMeanings, HaveEveryNameOnce) {
  std::set<std::string_view> seen;
  for (const KeyMeaning& meaning : key_meanings()) {
    for (const std::string_view name : meaning.names) {
      EXPECT_TRUE(seen.insert(name).second) << name;
    }
  }
}

TEST(KeyMeanings, AreToldForNamesOfOtherPrograms) {
  const std::pair<const char*, const char*> cases[] = {
      {"learning_rate=1", "optimizer.lr"},
      {"lr=1", "optimizer.lr"},
      {"optimizer.params.lr=1", "optimizer.lr"},
      {"training.LearningRate=1", "optimizer.lr"},
      {"batch_size=1", "train.global_batch_size or train.micro_batch_size"},
      {"micro-batch-size=1", "train.micro_batch_size"},
      {"train_micro_batch_size_per_gpu=1", "train.micro_batch_size"},
      {"per_device_train_batch_size=1", "train.micro_batch_size"},
      {"expert-model-parallel-size=2", "parallel.expert_parallel_size"},
      {"epochs=3", "train.steps"},
      {"max_steps=3", "train.steps"},
      {"train.max_steps=3", "train.steps"},
      {"seq_len=3", "data.seq_length"},
      {"warmup=3", "optimizer.warmup_steps"},
      {"tokenizer=x", "data.tokenizer"},
      {"train.output_dir=x", "output_dir"},
      {"num_experts=8", "model.config.num_experts"},
      {"parallel.tp=2", "expert parallel alone"},
      {"world_size=2", "--ranks"},
      {"gradient_accumulation_steps=2", "train.global_batch_size"},
      // A slip of another program's name, and one of ours.
      {"learnig_rate=1", "optimizer.lr"},
      {"train.stepz=3", "train.steps"},
      {"optimiser.lr=1", "optimizer"},
      {"train.global_batch=3", "train.global_batch_size"},
  };
  for (const auto& [setting, advice] : cases) {
    const std::string text = refusal(setting);
    EXPECT_NE(text.find("unknown key"), std::string::npos) << setting << ": " << text;
    EXPECT_NE(text.find(advice), std::string::npos) << setting << ": " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(ConfigSchema, EveryNumberHasLimits) {
  TrainConfig config;
  for (const Field& field : schema()) {
    const Slot slot = field.slot(config);
    if (std::holds_alternative<std::int64_t*>(slot) || std::holds_alternative<double*>(slot) ||
        std::holds_alternative<ChunkCount*>(slot)) {
      EXPECT_TRUE(std::isfinite(field.range.low) && std::isfinite(field.range.high)) << field.key;
    }
  }
}

TEST(ConfigSchema, ANumberOutsideOfItsLimitsIsOneLineWithAllOfIt) {
  TrainConfig config;
  for (const Field& field : schema()) {
    const Slot slot = field.slot(config);
    const bool whole =
        std::holds_alternative<std::int64_t*>(slot) || std::holds_alternative<ChunkCount*>(slot);
    if (!whole && !std::holds_alternative<double*>(slot)) {
      continue;
    }
    std::vector<std::string> wrong = {"-1",  "1e300", "99999999999999999999", ".nan", ".inf", "-.inf", "many",
                                      "[1]", "''"};
    if (whole) {
      wrong.emplace_back("1.5");
    }
    for (const std::string& value : wrong) {
      const std::string text = refusal(fmt::format("{}={}", field.key, value));
      EXPECT_NE(text.find(fmt::format("{} = ", field.key)), std::string::npos) << value << ": " << text;
      EXPECT_NE(text.find(field.range.text()), std::string::npos) << value << ": " << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace expedite::train
