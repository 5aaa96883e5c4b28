#include "expedite/hf/safetensors_writer.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "expedite/hf/safetensors_folder.h"
#include "tests/error_text.h"
#include "tests/temporary_folder.h"

namespace expedite::hf {
namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(SafetensorsWriter, RoundTripsThroughTheReader) {
  const TemporaryFolder folder;
  const auto path = folder / "model.safetensors";
  std::vector<float> matrix = {1, 2, 3, 4, 5, 6};
  std::vector<bf16> vector = {bf16(0.5F), bf16(-2.0F)};
  std::vector<std::int64_t> scalar = {42};
  SafetensorsWriter writer(path, {{"empty.first", StoredType::f32, {0, 3}},
                                  {"matrix", StoredType::f32, {2, 2}},
                                  {"vector", StoredType::bf16, {2}},
                                  {"scalar", StoredType::i64, {}},
                                  {"empty.last", StoredType::bf16, {0}}});
  writer.append("empty.first", std::span<const std::byte>());
  writer.append("matrix", ConstTensorView(matrix.data(), DType::f32, {2, 2}, 3));  // a slice of three columns
  const auto bytes = std::as_bytes(std::span(vector));
  writer.append("vector", bytes.first(1));
  writer.append("vector", bytes.subspan(1));
  writer.append("scalar", ConstTensorView(std::span<const std::int64_t>(scalar)));
  const WrittenFile written = writer.finish();

  const std::string content = content_of(path);
  EXPECT_EQ(written.bytes, static_cast<std::int64_t>(content.size()));
  EXPECT_EQ(written.crc32,
            crc32_z(0, reinterpret_cast<const unsigned char*>(content.data()), content.size()));
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().size(), 5U);
  EXPECT_EQ(file.read_f32("matrix"), (std::vector<float>{1, 2, 4, 5}));
  EXPECT_EQ(file.read_f32("vector"), (std::vector<float>{0.5F, -2.0F}));
  EXPECT_EQ(file.read_i64("scalar"), scalar);
  EXPECT_EQ(file.tensor("empty.first").shape, (std::vector<std::int64_t>{0, 3}));
}

TEST(SafetensorsWriter, RefusesTensorsOutOfTurn) {
  const TemporaryFolder folder;
  const std::vector<float> values(4);
  const ConstTensorView four{std::span(values)};
  SafetensorsWriter writer(folder / "w", {{"a", StoredType::f32, {3}}, {"b", StoredType::f32, {4}}});
  EXPECT_TRUE(mentions(error_text([&] { writer.append("b", four); }), {"b", "a is next"}));
  EXPECT_TRUE(
      mentions(error_text([&] { writer.append("a", four); }), {"12 bytes to come, and was given 16"}));
  const std::vector<bf16> halves(3);
  EXPECT_TRUE(mentions(error_text([&] { writer.append("a", ConstTensorView(std::span(halves))); }),
                       {"stored as F32, not bf16"}));
  EXPECT_TRUE(mentions(error_text([&] { (void)writer.finish(); }), {"a was not written"}));
  writer.append("a", four.slice(0, 3));
  EXPECT_TRUE(mentions(error_text([&] { (void)writer.finish(); }), {"b was not written"}));
  writer.append("b", four);
  EXPECT_TRUE(mentions(error_text([&] { writer.append("b", four); }), {"the end is next"}));
  EXPECT_GT(writer.finish().bytes, 28);
}

TEST(SafetensorsWriter, RefusesBadLists) {
  const TemporaryFolder folder;
  const auto create = [&](std::vector<StoredTensor> tensors) {
    return error_text([&] { SafetensorsWriter(folder / "w", std::move(tensors)); });
  };
  EXPECT_TRUE(
      mentions(create({{"a", StoredType::f32, {1}}, {"a", StoredType::f32, {1}}}), {"second tensor"}));
  EXPECT_TRUE(mentions(create({{"__metadata__", StoredType::f32, {1}}}), {"reserved"}));
  EXPECT_TRUE(mentions(create({{"a", StoredType::f32, {-1}}}), {"extent"}));
  EXPECT_TRUE(mentions(error_text([&] { SafetensorsWriter(folder / "none/w", {}); }), {"cannot create"}));
}

TEST(SafetensorsWriter, AFullDiskIsAnError) {
  EXPECT_TRUE(mentions(error_text([&] {
                         SafetensorsWriter("/dev/full", {{"a", StoredType::f32, {1}}});
                       }),
                       {"/dev/full", "No space left"}));
}

TEST(SafetensorsWriter, AnUnfinishedFileIsRefusedByTheReader) {
  const TemporaryFolder folder;
  { SafetensorsWriter writer(folder / "w", {{"a", StoredType::f32, {3}}}); }
  EXPECT_TRUE(mentions(error_text([&] { SafetensorsFile{folder / "w"}; }), {"0 bytes of data"}));
}

TEST(ShardPlan, KeepsOneFileWhereAllFits) {
  const ShardPlan plan = plan_shards({{"a", StoredType::f32, {10}}, {"b", StoredType::bf16, {10}}}, 60);
  ASSERT_EQ(plan.shards.size(), 1U);
  EXPECT_EQ(plan.shards[0].file, "model.safetensors");
  EXPECT_EQ(plan.total_bytes, 60);
  EXPECT_EQ(plan_shards({}).shards.size(), 1U);
}

TEST(ShardPlan, CutsBySizeWithoutOverflow) {
  const std::int64_t big = std::int64_t{1} << 40;
  const ShardPlan plan = plan_shards({{"a", StoredType::f32, {2}},
                                      {"b", StoredType::f32, {big, 2}},
                                      {"c", StoredType::f32, {1}},
                                      {"d", StoredType::f32, {1}}},
                                     8);
  ASSERT_EQ(plan.shards.size(), 3U);
  EXPECT_EQ(plan.shards[1].file, "model-00002-of-00003.safetensors");
  EXPECT_EQ(plan.shards[1].tensors.size(), 1U);
  EXPECT_EQ(plan.shards[2].tensors.size(), 2U);
  EXPECT_EQ(plan.total_bytes, 16 + 8 * big);
  const auto index = nlohmann::json::parse(index_text(plan));
  EXPECT_EQ(index["metadata"]["total_size"], 16 + 8 * big);
  EXPECT_EQ(index["weight_map"]["d"], "model-00003-of-00003.safetensors");
}

class ShardedFolder : public testing::Test {
 protected:
  void SetUp() override {
    const ShardPlan plan = plan_shards({{"a", StoredType::f32, {2}}, {"b", StoredType::f32, {2}}}, 8);
    float value = 0;
    for (const ShardPlan::Shard& shard : plan.shards) {
      SafetensorsWriter writer(folder_ / shard.file, shard.tensors);
      for (const StoredTensor& tensor : shard.tensors) {
        const std::vector<float> values = {++value, value};
        writer.append(tensor.name, ConstTensorView(std::span(values)));
      }
      (void)writer.finish();
    }
    folder_.write(kIndexFileName, index_text(plan));
  }
  std::string open() const {
    return error_text([&] { SafetensorsFolder{folder_.path()}; });
  }
  TemporaryFolder folder_;
};

TEST_F(ShardedFolder, IsReadThroughItsIndex) {
  const SafetensorsFolder folder(folder_.path());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "b"}));
  std::vector<float> b(2);
  folder.read("b", TensorView(std::span(b)));
  EXPECT_EQ(b, (std::vector<float>{2, 2}));
  EXPECT_TRUE(folder.contains("a"));
  EXPECT_TRUE(mentions(error_text([&] { (void)folder.tensor("c"); }), {"no tensor c"}));
}

TEST_F(ShardedFolder, AMissingShardIsNamed) {
  std::filesystem::remove(folder_ / "model-00002-of-00002.safetensors");
  EXPECT_TRUE(mentions(open(), {"model-00002-of-00002.safetensors is missing", "tensor b"}));
}

TEST_F(ShardedFolder, AMissingTensorIsNamed) {
  folder_.write(kIndexFileName, R"({"weight_map":{"c":"model-00001-of-00002.safetensors"}})");
  EXPECT_TRUE(mentions(open(), {"tensor c is not in model-00001-of-00002.safetensors"}));
}

TEST_F(ShardedFolder, ABadIndexIsRefused) {
  for (const char* index : {"", "[]", "{}", R"({"weight_map":3})", R"({"weight_map":{"a":3}})",
                            R"({"weight_map":{"a":"../model-00001-of-00002.safetensors"}})",
                            R"({"weight_map":{"a":"/etc/passwd"}})", R"({"weight_map":{"a":""}})",
                            R"({"weight_map":{"a":".."}})", R"({"weight_map":{"a":"x","a":"x"}})"}) {
    folder_.write(kIndexFileName, index);
    EXPECT_TRUE(mentions(open(), {kIndexFileName})) << index;
  }
}

TEST(SafetensorsFolder, SaysWhatAFolderWithoutWeightsLacks) {
  const TemporaryFolder folder;
  EXPECT_TRUE(mentions(error_text([&] { SafetensorsFolder{folder.path()}; }), {"model.safetensors"}));
}

}  // namespace
}  // namespace expedite::hf
