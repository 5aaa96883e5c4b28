// Hugging Face's own numbers (see tests/fixtures/hf), read as a user would compare them, for every layout.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "expedite/model/compare.h"
#include "expedite/model/safetensors.h"
#include "tests/model/mpi/rig.h"

namespace expedite::model::tests {
namespace {

class HuggingFaceModel : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] CompareOptions options(DType dtype = DType::f32) const {
    const std::filesystem::path folder = std::filesystem::path(EXPEDITE_FIXTURES) / "hf" / GetParam();
    return {.model_dir = folder, .expected = folder / "expected.safetensors", .dtype = dtype};
  }
};

TEST_P(HuggingFaceModel, IsReproducedInEveryLayout) {
  const comm::Communicator& world = job();
  for (const int expert_parallel_size : divisors(world.size())) {
    const comm::ProcessGrid& grid = grid_of(expert_parallel_size);
    const std::vector<TensorError> errors = compare(options(), grid);
    if (world.rank() != 0) {
      EXPECT_TRUE(errors.empty());
      continue;
    }
    std::set<std::string> compared;
    for (const TensorError& error : errors) {
      EXPECT_LE(error.measure(), 1e-5) << error.name << " with EP " << expert_parallel_size;
      compared.insert(error.name);
    }
    const SafetensorsFile file(options().expected);
    for (const StoredTensor& tensor : file.tensors()) {
      EXPECT_EQ(compared.contains(tensor.name), tensor.name != "input_ids") << tensor.name;
    }
  }
}

TEST_P(HuggingFaceModel, IsCloseInBf16) {
  const comm::Communicator& world = job();
  for (const TensorError& error : compare(options(DType::bf16), grid_of(world.size()))) {
    if (error.name == "loss") {  // a token that is routed elsewhere changes others much more
      EXPECT_LE(error.measure(), 1e-2);
      EXPECT_GT(error.measure(), 0.0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, HuggingFaceModel,
                         testing::Values("qwen3_moe", "qwen3_moe_dense", "mixtral"));

}  // namespace
}  // namespace expedite::model::tests
