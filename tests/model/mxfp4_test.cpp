#include "expedite/hf/mxfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "expedite/hf/names.h"
#include "expedite/model/checkpoint_io.h"
#include "tests/error_text.h"
#include "tests/temporary_folder.h"

namespace expedite::model {
namespace {

constexpr std::int64_t kExperts = 3;

ModelConfig gpt_oss(std::int64_t hidden, std::int64_t ffn) {
  return architecture::parse_model_config({{"model_type", "gpt_oss"},
                                           {"vocab_size", 7},
                                           {"hidden_size", hidden},
                                           {"intermediate_size", ffn},
                                           {"num_hidden_layers", 1},
                                           {"num_attention_heads", 2},
                                           {"num_key_value_heads", 1},
                                           {"head_dim", 4},
                                           {"num_local_experts", kExperts},
                                           {"num_experts_per_tok", 2},
                                           {"quantization_config", {{"quant_method", "mxfp4"}}}},
                                          "test");
}

using Bytes = std::vector<std::uint8_t>;

/// A folder whose experts' matrices are in MXFP4, of random bits; all else is one.
class QuantisedFolder {
 public:
  explicit QuantisedFolder(const ModelConfig& config) {
    std::vector<hf::StoredTensor> stored;
    for (const hf::ParameterSpec& spec : hf::parameters(config)) {
      if (spec.fused && spec.shape.size() == 3) {
        const std::vector<std::int64_t>& shape = spec.shape;
        stored.push_back(
            {spec.name + hf::kMxfp4Blocks, hf::StoredType::u8, {shape[0], shape[2], shape[1] / 32, 16}});
        stored.push_back(
            {spec.name + hf::kMxfp4Scales, hf::StoredType::u8, {shape[0], shape[2], shape[1] / 32}});
      } else {
        stored.push_back({spec.name, hf::StoredType::f32, spec.shape});
      }
    }
    hf::SafetensorsWriter writer(folder_ / "model.safetensors", stored);
    std::mt19937 random(5);
    for (const hf::StoredTensor& tensor : stored) {
      if (tensor.type == hf::StoredType::u8) {
        Bytes& bytes = bytes_[tensor.name];
        for (std::int64_t i = 0; i < tensor.bytes(); ++i) {
          const bool scale = tensor.name.ends_with(hf::kMxfp4Scales);
          bytes.push_back(static_cast<std::uint8_t>(scale ? 120 + random() % 16 : random() % 256));
        }
        writer.append(tensor.name, std::as_bytes(std::span(bytes)));
      } else {
        const std::vector<float> ones(static_cast<std::size_t>(tensor.elements()), 1.0F);
        writer.append(tensor.name, std::as_bytes(std::span(ones)));
      }
    }
    writer.finish();
  }

  [[nodiscard]] std::filesystem::path path() const { return folder_ / ""; }

  /// Number `i` of the row-major [E, N, K] that the blocks hold, worked out from its bits.
  [[nodiscard]] double number(const std::string& name, std::int64_t i) const {
    const std::uint8_t byte = bytes_.at(name + hf::kMxfp4Blocks)[static_cast<std::size_t>(i / 2)];
    const int bits = i % 2 == 0 ? byte % 16 : byte / 16;
    const int exponent = (bits / 2) % 4;
    const double mantissa = (exponent == 0 ? 0.0 : 1.0) + 0.5 * (bits % 2);
    const double magnitude = mantissa * std::pow(2.0, exponent == 0 ? 0 : exponent - 1);
    const int scale = bytes_.at(name + hf::kMxfp4Scales)[static_cast<std::size_t>(i / 32)];
    return (bits >= 8 ? -1.0 : 1.0) * magnitude * std::pow(2.0, scale - 127);
  }

 private:
  TemporaryFolder folder_;
  std::map<std::string, Bytes> bytes_;
};

void expect_experts(const ModelConfig& config, const QuantisedFolder& folder, int rank, DType dtype) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t ffn = config.moe_intermediate_size;
  MemoryPool pool;
  const ExpertShard shard{.first_expert = {0, 2, kExperts}, .ep_rank = rank};
  Parameters held(config, dtype, shard, State::weights, pool);
  load_weights(held, hf::SafetensorsFolder(folder.path()));
  const MoeWeights& moe = held.layer(0).moe;
  const auto value = [&](const Parameter& parameter, std::int64_t i) {
    return dtype == DType::f32 ? parameter.weight.as<float>()[i]
                               : static_cast<float>(parameter.weight.as<bf16>()[i]);
  };
  for (std::int64_t local = 0; local < shard.local(); ++local) {
    const std::int64_t expert = shard.begin() + local;
    for (std::int64_t f = 0; f < ffn; ++f) {
      for (std::int64_t h = 0; h < hidden; ++h) {
        for (const std::int64_t up : {0, 1}) {
          EXPECT_EQ(value(*moe.gate_up, ((2 * local + up) * ffn + f) * hidden + h),
                    folder.number(hf::ParameterNames::fused_experts_gate_up(0),
                                  (expert * 2 * ffn + 2 * f + up) * hidden + h));
        }
        EXPECT_EQ(value(*moe.down, (local * hidden + h) * ffn + f),
                  folder.number(hf::ParameterNames::fused_experts_down(0), (expert * hidden + h) * ffn + f));
      }
    }
  }
}

TEST(Mxfp4, IsReadAsItsBitsSayOnEveryRank) {
  const ModelConfig config = gpt_oss(64, 32);
  const QuantisedFolder folder(config);
  for (const int rank : {0, 1}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {  // numbers of three bits are exact in both
      expect_experts(config, folder, rank, dtype);
    }
  }
}

TEST(Mxfp4, RefusesBlocksThatDoNotFit) {
  const QuantisedFolder folder(gpt_oss(64, 32));
  const auto refusal = [&](const ModelConfig& config) {
    MemoryPool pool;
    Parameters held(config, DType::f32, {.first_expert = {0, kExperts}}, State::shapes, pool);
    return error_text([&] { check_weights(held, hf::SafetensorsFolder(folder.path())); });
  };
  EXPECT_EQ(refusal(gpt_oss(64, 32)), "no error");
  // The experts come before the norms that follow them, and after attention, which fits.
  ModelConfig wider = gpt_oss(64, 64);
  EXPECT_TRUE(mentions(refusal(wider), {"gate_up_proj", "[3, 128, 2, 16]"}));
  ModelConfig odd = gpt_oss(64, 40);
  EXPECT_TRUE(mentions(refusal(odd), {"gate_up_proj"}));
}

}  // namespace
}  // namespace expedite::model
