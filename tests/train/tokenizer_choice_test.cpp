#include "expedite/train/tokenizer_choice.h"

#include <gtest/gtest.h>

#include "expedite/base/error.h"
#include "tests/test_folder.h"

namespace expedite::train {
namespace {

TEST(TokenizerChoice, IsTheModelsUnlessAnotherIsGiven) {
  const TestFolder folder;
  const auto config_json = folder.write("config.json", "{}").string();
  TrainConfig config;
  EXPECT_EQ(tokenizer_choice(config), "bytes");
  config.model.path = folder.path();
  EXPECT_EQ(tokenizer_choice(config), "bytes");
  folder.write("tokenizer.model", "");
  EXPECT_EQ(tokenizer_choice(config), folder.path().string());
  config.model.path = config_json;
  EXPECT_EQ(tokenizer_choice(config), folder.path().string());
  config.data.tokenizer = "elsewhere/words.model";
  EXPECT_EQ(tokenizer_choice(config), "elsewhere/words.model");
}

TEST(TokenizerChoice, LoadedWeightsAreNotFedBytesWithoutBeingTold) {
  const TestFolder folder;
  TrainConfig config;
  config.model = {.path = folder.path(), .load_weights = true};
  try {
    static_cast<void>(tokenizer_choice(config));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("data.tokenizer=bytes"), std::string::npos) << error.what();
  }
  config.data.tokenizer = "bytes";
  EXPECT_EQ(tokenizer_choice(config), "bytes");
}

}  // namespace
}  // namespace expedite::train
