// Hugging Face's own numbers (see tests/fixtures/hf), read as a user would compare them, for every layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "expedite/hf/safetensors.h"
#include "expedite/model/compare.h"
#include "tests/model/mpi/rig.h"

namespace expedite::model::tests {
namespace {

class HuggingFaceModel : public testing::TestWithParam<std::string> {
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
      EXPECT_LE(error.max_error, 2e-5 * error.max_expected)
          << error.name << " with EP " << expert_parallel_size;
      compared.insert(error.name);
    }
    const hf::SafetensorsFile file(options().expected);
    for (const hf::StoredTensor& tensor : file.tensors()) {
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

std::vector<std::string> fixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(EXPEDITE_FIXTURES "/hf")) {
    if (entry.is_directory()) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, HuggingFaceModel, testing::ValuesIn(fixtures()));

}  // namespace
}  // namespace expedite::model::tests
