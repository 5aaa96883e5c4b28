// Sizes by role against what layers take of their buffers, for every family.
#include "expedite/architecture/buffer_bytes.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "expedite/model/dense_mlp.h"
#include "expedite/model/grouped_query_attention.h"
#include "expedite/model/latent_attention.h"
#include "expedite/model/moe_layer.h"
#include "expedite/model/shared_expert.h"

namespace expedite::model {
namespace {

using schedule::Role;

template <typename Laid>
std::int64_t taken(const ModelConfig& config, std::int64_t count, DType dtype) {
  Arena arena;
  static_cast<void>(Laid(arena, config, count, dtype));
  return arena.used();
}

void expect_fitting(const ModelConfig& config, DType dtype, std::int64_t count) {
  const architecture::BufferBytes bytes(config, dtype);
  if (config.attention == architecture::AttentionKind::latent) {
    EXPECT_EQ(bytes(Role::attention, count), taken<LatentActivations>(config, count, dtype));
    EXPECT_EQ(bytes(Role::grad_attention, count), taken<LatentGradients>(config, count, dtype));
  } else {
    EXPECT_EQ(bytes(Role::attention, count), taken<AttentionActivations>(config, count, dtype));
    EXPECT_EQ(bytes(Role::grad_attention, count), count * config.qkv_size() * size_of(dtype));
  }
  EXPECT_EQ(bytes(Role::mlp, count), taken<DenseActivations>(config, count, dtype));
  EXPECT_EQ(bytes(Role::router, count), taken<RouterActivations>(config, count, dtype));
  EXPECT_EQ(bytes(Role::dispatch_send, count), taken<GatedRows>(config, count, dtype));
  EXPECT_EQ(bytes(Role::expert_input, count), taken<ExpertInput>(config, count, dtype));
  EXPECT_EQ(bytes(Role::shared_experts, count), taken<SharedActivations>(config, count, dtype));
  EXPECT_EQ(bytes(Role::grad_shared, count), taken<SharedGradients>(config, count, dtype));
}

TEST(BufferBytes, AreThoseThatLayersTake) {
  for (const auto& folder : std::filesystem::directory_iterator(EXPEDITE_FIXTURES "/hf")) {
    SCOPED_TRACE(folder.path().string());
    const ModelConfig config = architecture::read_model_config(folder.path() / "config.json");
    for (const std::int64_t count : {0, 1, 7, 64, 1001}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        expect_fitting(config, dtype, count);
      }
    }
  }
}

}  // namespace
}  // namespace expedite::model
