#include "expedite/architecture/buffer_bytes.h"

#include <gtest/gtest.h>

#include "expedite/tensor/memory_pool.h"
#include "tests/error_of.h"

namespace expedite::architecture {
namespace {

using schedule::Role;

std::int64_t aligned(std::int64_t bytes) {
  constexpr std::int64_t kAlignment = MemoryPool::kAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

TEST(BufferBytes, CountWhatGroupedQueryAttentionKeeps) {
  // Qwen3-30B-A3B: 32 query and 4 key heads of 128, whose norms need what came before them.
  const ModelConfig& model = *find_builtin_model("qwen3-30b-a3b");
  const BufferBytes bytes(model, DType::bf16);
  const std::int64_t tokens = 4096;
  const std::int64_t qkv = (32 + 2 * 4) * 128;
  const std::int64_t expected = tokens * (2 * 2048 + 4 + 2 * qkv + 2 * 4096 + 4 * 32) +  // without the norms
                                tokens * (2 * (32 + 4) * 128 + 4 * (32 + 4));
  EXPECT_EQ(bytes(Role::attention, tokens), expected);  // all multiples of the alignment
  EXPECT_EQ(bytes(Role::grad_attention, tokens), tokens * 2 * qkv);
}

TEST(BufferBytes, CountWhatLatentAttentionKeeps) {
  const ModelConfig& model = *find_builtin_model("deepseek-v3");
  const std::int64_t tokens = 1024;
  const BufferBytes bytes(model, DType::bf16);
  EXPECT_EQ(bytes(Role::attention, tokens),
            tokens * (2 * 7168 + 4 + 2 * (1536 + 512) + 2 * 512 + 4 + 2 * 2 * 128 * 192 + 2 * 2 * 128 * 128 +
                      4 * 128 + 2 * 1536 + 4));
  EXPECT_EQ(bytes(Role::grad_attention, tokens),
            tokens * 2 * (1536 + 512 + 64 + 128 * 192 + 128 * (128 + 128)));
}

TEST(BufferBytes, BeginTensorsAtTheAlignment) {
  const BufferBytes bytes(*find_builtin_model("mixtral-8x7b"), DType::f32);
  for (const std::int64_t rows : {0, 1, 3, 1000}) {
    EXPECT_EQ(bytes(Role::expert_input, rows), aligned(rows * 4 * 4096) + aligned(rows * 4));
    EXPECT_EQ(bytes(Role::dispatch_send, rows), aligned(rows * 4 * 4096) + aligned(rows * 4 * 2));
    EXPECT_EQ(bytes(Role::gate_up, rows), rows * 2 * 4 * 14336);
  }
}

TEST(BufferBytes, KnowNoStages) {
  const BufferBytes bytes(*find_builtin_model("mixtral-8x7b"), DType::f32);
  EXPECT_NE(error_of([&] { (void)bytes(Role::stage, 1); }).find("stage"), std::string::npos);
}

TEST(BufferBytes, CountOneProjectionWhereAnMlpHasNoGate) {
  const ModelConfig& model = *find_builtin_model("gpt3-175b");
  const std::int64_t ffn = 4 * 12288;
  EXPECT_EQ(BufferBytes(model, DType::bf16)(Role::mlp, 16), 16 * (2 * 12288 + 4 + 2 * ffn + 2 * ffn));
}

}  // namespace
}  // namespace expedite::architecture
