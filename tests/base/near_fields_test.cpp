#include "expedite/base/near_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "expedite/base/config_fields.h"

namespace expedite {
namespace {

const std::vector<std::string> kKnown = {"attention_factor", "beta_fast", "factor",
                                         "num_experts",      "type",      "max_position_embeddings"};

TEST(NearFields, AreEditsOrShortenedWords) {
  EXPECT_EQ(slip_of("beta_fats", kKnown), "beta_fast");
  EXPECT_EQ(slip_of("facto", kKnown), "factor");
  EXPECT_EQ(slip_of("attn_factor", kKnown), "attention_factor");
  EXPECT_EQ(slip_of("max_pos_emb", kKnown), "max_position_embeddings");
  EXPECT_EQ(slip_of("number_experts", kKnown), "num_experts");
  EXPECT_EQ(slip_of("tpye", kKnown), "type");
}

TEST(NearFields, AreNotWhateverIsNearest) {
  EXPECT_EQ(slip_of("type", kKnown), "");
  EXPECT_EQ(slip_of("dtype_of", kKnown), "");
  EXPECT_EQ(slip_of("tap", kKnown), "");
  EXPECT_EQ(slip_of("pad_token_id", kKnown), "");
  EXPECT_EQ(slip_of("attention_bias", kKnown), "");
  EXPECT_EQ(slip_of("x", std::vector<std::string>()), "");
}

TEST(ConfigFields, RefusesASlipOfWhatIsNotThere) {
  const nlohmann::json object = {{"num_expert", 4}, {"hidden_size", 8}, {"head_dims", 2}};
  const ConfigFields fields(object, "config.json");
  EXPECT_EQ(fields.integer("hidden_size", 1), 8);
  std::vector<std::string> notes;
  fields.refuse_slips({}, notes);
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(fields.integer("num_experts", 1), 1);
  EXPECT_THROW(fields.refuse_slips({}, notes), Error);
  const std::vector<std::string> of_others = {"num_expert"};
  fields.refuse_slips(of_others, notes);
  EXPECT_TRUE(notes.empty());
}

TEST(ConfigFields, TellsOfASlipBesideTheField) {
  const nlohmann::json object = {{"num_expert", 4}, {"num_experts", 8}};
  const ConfigFields fields(object, "config.json");
  EXPECT_EQ(fields.integer("num_experts", 1), 8);
  std::vector<std::string> notes;
  fields.refuse_slips({}, notes);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("num_expert has no effect"), std::string::npos);
}

TEST(ConfigFields, SaysWhatAMissingFieldMayStandUnder) {
  const nlohmann::json object = {{"hiden_size", 4}};
  const ConfigFields fields(object, "config.json");
  try {
    (void)fields.required_integer("hidden_size");
    FAIL() << "a missing field was read";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "config.json: the field hidden_size is missing; is hiden_size meant for it?");
  }
}

}  // namespace
}  // namespace expedite
