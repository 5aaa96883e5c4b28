#include "expedite/architecture/rotary_scaling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/error_text.h"

namespace expedite::architecture {
namespace {

using nlohmann::json;

constexpr std::int64_t kHeadDim = 16;

RotarySettings parse(const json& config, std::int64_t max_positions = 1024) {
  return parse_rotary_settings(ConfigFields(config, "config.json"), kHeadDim, max_positions, 10000.0);
}

// Within a few roundings of float32 of values worked out in double precision from the papers' formulas.
void expect_frequencies(const RotarySettings& settings, std::int64_t length,
                        const std::vector<double>& expected) {
  const std::vector<float> frequencies = inverse_frequencies(settings, length);
  ASSERT_EQ(frequencies.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(frequencies[i], expected[i], 1e-6 * expected[i]) << i;
  }
}

std::vector<double> unscaled(double theta) {
  std::vector<double> result;
  for (int i = 0; i < kHeadDim; i += 2) {
    result.push_back(std::pow(theta, -static_cast<double>(i) / kHeadDim));
  }
  return result;
}

TEST(RotaryScaling, DefaultsToPlainFrequencies) {
  expect_frequencies(parse(json::object()), 1, unscaled(10000.0));
  expect_frequencies(parse({{"rope_theta", 1000000}, {"rope_scaling", nullptr}}), 1, unscaled(1e6));
  expect_frequencies(parse({{"rope_scaling", {{"rope_type", "default"}}}}), 1, unscaled(10000.0));
  EXPECT_EQ(parse(json::object()).attention_factor, 1.0);
}

TEST(RotaryScaling, LinearDividesAll) {
  std::vector<double> expected = unscaled(10000.0);
  for (double& value : expected) {
    value /= 2.5;
  }
  expect_frequencies(parse({{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}}), 1, expected);
}

TEST(RotaryScaling, DynamicStretchesThetaBeyondTheTrainedLength) {
  const RotarySettings settings = parse({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}}});
  expect_frequencies(settings, 7, unscaled(10000.0));
  expect_frequencies(settings, 1024, unscaled(10000.0));
  expect_frequencies(settings, 1536, unscaled(22081.790273476247));
}

TEST(RotaryScaling, YarnRampsBetweenKeptAndInterpolated) {
  const std::vector<double> expected = {1.0,    0.2569350598886808,    0.0625,  0.01383496476323666,
                                        0.0025, 0.0007905694150420948, 0.00025, 7.905694150420948e-05};
  const json scaling = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 256}};
  const RotarySettings settings = parse({{"rope_scaling", scaling}});
  expect_frequencies(settings, 1024, expected);
  EXPECT_NEAR(settings.attention_factor, 1.138629436111989, 1e-12);
  // Without the original length, max_position_embeddings is it.
  const RotarySettings plain = parse({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}, 256);
  expect_frequencies(plain, 1024, expected);
  EXPECT_NEAR(plain.attention_factor, 1.138629436111989, 1e-12);
}

TEST(RotaryScaling, YarnTakesTheFactorAsGiven) {
  const json scaling = {{"rope_type", "yarn"}, {"factor", 7.0}, {"original_max_position_embeddings", 256}};
  for (const char* spelling : {"rope_scaling", "rope_parameters"}) {
    const RotarySettings settings = parse({{spelling, scaling}, {"max_position_embeddings", 1024}});
    EXPECT_EQ(settings.factor, 7.0);
    EXPECT_EQ(settings.original_positions, 256.0);
    EXPECT_NEAR(settings.attention_factor, 0.1 * std::log(7.0) + 1.0, 1e-12);
    // The lengths say 4: one line tells it.
    ASSERT_EQ(settings.notes.size(), 1U);
    for (const char* part : {spelling, "factor 7", "1024", "256", "= 4"}) {
      EXPECT_NE(settings.notes[0].find(part), std::string::npos) << settings.notes[0];
    }
  }
}

TEST(RotaryScaling, YarnTakesTheRatioOfLengthsWhereNoFactorIsGiven) {
  json scaling = {{"rope_type", "yarn"}, {"original_max_position_embeddings", 256}};
  for (const char* spelling : {"rope_scaling", "rope_parameters"}) {
    EXPECT_EQ(parse({{spelling, scaling}}).factor, 4.0);
    EXPECT_TRUE(parse({{spelling, scaling}, {"max_position_embeddings", 1024}}).notes.empty());
  }
  scaling["factor"] = nullptr;
  EXPECT_EQ(parse({{"rope_scaling", scaling}}).factor, 4.0);
  scaling = {{"rope_type", "yarn"}};
  EXPECT_EQ(parse({{"rope_scaling", scaling}, {"original_max_position_embeddings", 512}}).factor, 2.0);
  EXPECT_TRUE(mentions(error_text([&] { (void)parse({{"rope_scaling", scaling}}); }), {"factor", "missing"}));
  scaling["original_max_position_embeddings"] = 2048;
  EXPECT_TRUE(mentions(error_text([&] {
                         (void)parse({{"rope_scaling", scaling}});
                       }),
                       {"2048", "above", "1024"}));
}

// The setting for long context in the model cards of Qwen3: positions 40,960, which hold prompt and answer.
TEST(RotaryScaling, ReadsLongContextAsQwen3DocumentsIt) {
  const json scaling = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  const RotarySettings settings =
      parse({{"rope_scaling", scaling}, {"max_position_embeddings", 40960}}, 40960);
  EXPECT_EQ(settings.factor, 4.0);
  EXPECT_EQ(settings.notes.size(), 1U);
}

TEST(RotaryScaling, YarnDoesNotTruncateItsRampWhenToldSo) {
  json scaling = {{"rope_type", "yarn"}, {"factor", 4.0}, {"truncate", false}};
  const RotarySettings settings = parse({{"rope_scaling", scaling}}, 256);
  const std::vector<float> frequencies = inverse_frequencies(settings, 1);
  const auto pair = [](double rotations) {
    return kHeadDim * std::log(256.0 / (rotations * 2.0 * std::acos(-1.0))) / (2.0 * std::log(10000.0));
  };
  const double low = std::max(pair(32.0), 0.0);
  const double high = pair(1.0);
  const std::vector<double> plain = unscaled(10000.0);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    EXPECT_NEAR(frequencies[i], plain[i] * (1.0 - ramp) + plain[i] / 4.0 * ramp, 1e-6 * plain[i]) << i;
  }
}

TEST(RotaryScaling, RefusesSlipsInsideTheMap) {
  const std::pair<const char*, const char*> slips[] = {
      {"attn_factor", "attention_factor"},
      {"beta_fats", "beta_fast"},
      {"beta_slo", "beta_slow"},
      {"facter", "factor"},
      {"orig_max_position_embeddings", "original_max_position_embeddings"},
      {"mscale_al_dim", "mscale_all_dim"},
      {"rope_thetta", "rope_theta"}};
  for (const auto& [slip, meant] : slips) {
    for (const char* spelling : {"rope_scaling", "rope_parameters"}) {
      json scaling = {{"rope_type", "yarn"}, {"factor", 4.0}};
      scaling[slip] = 2.0;
      EXPECT_TRUE(mentions(error_text([&] {
                             (void)parse({{spelling, scaling}});
                           }),
                           {spelling, slip, meant}))
          << slip;
    }
  }
  for (const char* kind : {"linear", "dynamic", "default"}) {
    const json scaling = {{"rope_type", kind}, {"factor", 2.0}, {"fctor", 3.0}};
    EXPECT_TRUE(mentions(error_text([&] { (void)parse({{"rope_scaling", scaling}}); }), {"fctor", "factor"}));
  }
}

TEST(RotaryScaling, TellsWhatItDoesNotRead) {
  const json scaling = {{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 32}, {"finetuned", true}};
  const RotarySettings settings = parse({{"rope_scaling", scaling}});
  ASSERT_EQ(settings.notes.size(), 1U);
  EXPECT_NE(settings.notes[0].find("linear"), std::string::npos);
  EXPECT_NE(settings.notes[0].find("beta_fast or finetuned"), std::string::npos) << settings.notes[0];
}

TEST(RotaryScaling, ReadsAMapOfThetaAlone) {
  EXPECT_EQ(parse({{"rope_parameters", {{"rope_theta", 5e6}}}}).theta, 5e6);
  EXPECT_EQ(parse({{"rope_parameters", {{"rope_theta", 5e6}}}}).scaling, RotaryScaling::none);
}

TEST(RotaryScaling, YarnReadsItsOptions) {
  json scaling = {{"rope_type", "yarn"},   {"factor", 4.0},  {"mscale", 0.707},
                  {"mscale_all_dim", 1.0}, {"beta_fast", 0}, {"beta_slow", 2}};
  EXPECT_NEAR(parse({{"rope_scaling", scaling}}).attention_factor, 0.964326914892074, 1e-12);
  EXPECT_EQ(parse({{"rope_scaling", scaling}}).beta_fast, 32.0);
  EXPECT_EQ(parse({{"rope_scaling", scaling}}).beta_slow, 2.0);
  scaling["attention_factor"] = 1.5;
  EXPECT_EQ(parse({{"rope_scaling", scaling}}).attention_factor, 1.5);
}

TEST(RotaryScaling, Llama3KeepsHighAndDividesLowFrequencies) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 64}};
  expect_frequencies(parse({{"rope_scaling", scaling}}), 1,
                     {1.0, 0.24438459943539834, 0.013042256043820465, 0.003952847075210474, 0.00125,
                      0.0003952847075210474, 0.000125, 3.952847075210474e-05});
}

TEST(RotaryScaling, ReadsTheNewerSpelling) {
  const json parameters = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 500.0}};
  const RotarySettings settings = parse({{"rope_parameters", parameters}});
  EXPECT_EQ(settings.scaling, RotaryScaling::linear);
  EXPECT_EQ(settings.theta, 500.0);
  EXPECT_EQ(settings.factor, 2.0);
}

TEST(RotaryScaling, LongropeDividesEachPairByItsFactor) {
  const json shorter = {1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0};
  const json longer = {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 48.0, 64.0};
  const json rope = {{"rope_type", "longrope"}, {"short_factor", shorter}, {"long_factor", longer}};
  const json config = {{"rope_theta", 10000.0},
                       {"max_position_embeddings", 1024},
                       {"original_max_position_embeddings", 128},
                       {"rope_scaling", rope}};
  const RotarySettings settings = parse(config);
  EXPECT_EQ(settings.factor, 8.0);
  EXPECT_NEAR(settings.attention_factor, std::sqrt(1.0 + std::log(8.0) / std::log(128.0)), 1e-12);
  const auto divided = [](const json& factors) {
    std::vector<double> result = unscaled(10000.0);
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] /= factors[i].get<double>();
    }
    return result;
  };
  expect_frequencies(settings, 128, divided(shorter));
  expect_frequencies(settings, 129, divided(longer));

  json given = config;
  given["rope_scaling"]["attention_factor"] = 1.25;
  EXPECT_EQ(parse(given).attention_factor, 1.25);
  json inside = config;  // a factor beside the original length in the map is taken
  inside.erase("original_max_position_embeddings");
  inside["rope_scaling"]["original_max_position_embeddings"] = 128;
  inside["rope_scaling"]["factor"] = 4.0;
  EXPECT_EQ(parse(inside).factor, 4.0);

  json few = config;
  few["rope_scaling"]["long_factor"] = {1.0, 2.0};
  EXPECT_TRUE(mentions(error_text([&] { (void)parse(few); }), {"long_factor", "8 positive numbers"}));
  few["rope_scaling"].erase("long_factor");
  EXPECT_TRUE(mentions(error_text([&] { (void)parse(few); }), {"long_factor is missing"}));
}

}  // namespace
}  // namespace expedite::architecture
