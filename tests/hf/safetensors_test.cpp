#include "expedite/hf/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "expedite/base/random.h"
#include "tests/error_text.h"
#include "tests/temporary_folder.h"

namespace expedite::hf {
namespace {

std::string with_length(std::uint64_t length, std::string_view rest) {
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file.append(rest);
}

std::string file_of(std::string_view header, std::string_view data) {
  return with_length(header.size(), std::string(header).append(data));
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string error_of_content(std::string_view content) {
  const TemporaryFolder folder;
  const auto path = folder.write("bad.safetensors", content);
  return error_text([&] { SafetensorsFile{path}; });
}

TEST(Safetensors, ReadsEveryTypeConverted) {
  const TemporaryFolder folder;
  const std::string data = bytes_of<double>({1.5, 1e-30}) + bytes_of<std::int64_t>({-7, 1LL << 40}) +
                           bytes_of<float>({3.25F, -0.0F}) + bytes_of<std::int32_t>({-5}) +
                           bytes_of<std::uint16_t>({0x3F80, 0x3C00, 0xC000, 0x0001, 0x7C00});
  const auto path = folder.write(
      "all.safetensors",
      file_of(R"({"__metadata__":{"format":"pt"},"h":{"dtype":"F16","shape":[4],"data_offsets":[46,54]},)"
              R"("b":{"dtype":"BF16","shape":[1,1],"data_offsets":[44,46]},)"
              R"("d":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
              R"("f":{"dtype":"F32","shape":[2],"data_offsets":[32,40]},)"
              R"("i":{"dtype":"I32","shape":[],"data_offsets":[40,44]},)"
              R"("z":{"dtype":"F32","shape":[3,0],"data_offsets":[32,32]},)"
              R"("l":{"dtype":"I64","shape":[2],"data_offsets":[16,32]}}  )",
              data));
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().front().name, "d");
  EXPECT_EQ(file.tensors().back().name, "h");
  EXPECT_EQ(file.read_f64("d"), (std::vector<double>{1.5, 1e-30}));
  EXPECT_EQ(file.read_f32("d"), (std::vector<float>{1.5F, 1e-30F}));
  EXPECT_EQ(file.read_f32("f"), (std::vector<float>{3.25F, -0.0F}));
  EXPECT_EQ(file.read_f32("b"), (std::vector<float>{1.0F}));
  EXPECT_EQ(file.read_f32("h"),
            (std::vector<float>{1.0F, -2.0F, std::ldexp(1.0F, -24), std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(file.read_i64("l"), (std::vector<std::int64_t>{-7, 1LL << 40}));
  EXPECT_EQ(file.read_i64("i"), (std::vector<std::int64_t>{-5}));
  EXPECT_TRUE(file.read_f32("z").empty());
  EXPECT_EQ(file.tensor("z").rows(), 3);

  std::vector<bf16> rounded(2);
  file.read("f", TensorView(std::span(rounded)));
  EXPECT_EQ(static_cast<float>(rounded[0]), 3.25F);
  std::vector<std::int32_t> narrow(2);
  EXPECT_TRUE(mentions(error_text([&] { file.read("l", TensorView(std::span(narrow))); }),
                       {"1099511627776", "32 bits"}));
  EXPECT_TRUE(mentions(error_text([&] { (void)file.read_i64("f"); }), {"integers"}));
  EXPECT_TRUE(mentions(error_text([&] { (void)file.read_f32("l"); }), {"floating-point"}));
  EXPECT_TRUE(mentions(error_text([&] { (void)file.read_f32("missing"); }), {"missing", "all.safetensors"}));
}

TEST(Safetensors, ReadsRowRangesIntoStridedRows) {
  const TemporaryFolder folder;
  std::vector<float> values(5 * 3);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
  }
  const SafetensorsFile file(folder.write(
      "m.safetensors",
      file_of(R"({"m":{"dtype":"F32","shape":[5,3],"data_offsets":[0,60]}})", bytes_of(values))));
  std::vector<float> out(2 * 4, -1.0F);
  file.read_rows("m", 3, TensorView(out.data(), DType::f32, {2, 3}, 4));
  EXPECT_EQ(out, (std::vector<float>{9, 10, 11, -1, 12, 13, 14, -1}));
  file.read_rows("m", 5, TensorView(out.data(), DType::f32, {0, 3}));
  const auto read = [&](std::int64_t first, Shape shape) {
    return error_text([&] { file.read_rows("m", first, TensorView(out.data(), DType::f32, shape)); });
  };
  EXPECT_TRUE(mentions(read(4, {2, 3}), {"rows 4 to 6"}));
  EXPECT_TRUE(mentions(read(-1, {2, 3}), {"rows -1"}));
  EXPECT_TRUE(mentions(read(0, {2, 4}), {"3 elements per row"}));
}

TEST(Safetensors, RefusesBadFilesNamingTheField) {
  struct Case {
    const char* what;
    std::string content;
    const char* message;
  };
  const auto tensor = [](const std::string& fields, std::string_view data = "12345678") {
    return file_of(R"({"w":{)" + fields + "}}", data);
  };
  const std::vector<Case> cases = {
      {"empty", "", "too few"},
      {"shorter than a length", "1234567", "too few"},
      {"length beyond the file", with_length(1000, "{}"), "header length 1000"},
      {"huge length", with_length(~0ULL, "{}"), "header length 18446744073709551615"},
      {"negative as signed", with_length(1ULL << 63, "{}"), "header length"},
      {"no header", with_length(0, ""), "brace"},
      {"not an object", file_of("[1,2]", ""), "brace"},
      {"broken JSON", file_of("{\"w\":", ""), "not valid JSON"},
      {"broken UTF-8", file_of("{\"\xff\":1}", ""), "not valid JSON"},
      {"deep nesting", file_of("{\"w\":" + std::string(1'000'000, '['), ""), "nests deeper"},
      {"deep objects", file_of("{\"w\":{\"shape\":[{\"a\":1}]}}", ""), "nests deeper"},
      {"repeated name", file_of(R"({"w":{},"w":{}})", ""), "twice"},
      {"repeated field", tensor(R"("dtype":"F32","dtype":"F32")"), "twice"},
      {"tensor not an object", file_of(R"({"w":3})", ""), "tensor w"},
      {"no dtype", tensor(R"("shape":[2],"data_offsets":[0,8])"), "dtype"},
      {"dtype not text", tensor(R"("dtype":3,"shape":[2],"data_offsets":[0,8])"), "dtype"},
      {"unknown dtype", tensor(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), "F31"},
      {"no shape", tensor(R"("dtype":"F32","data_offsets":[0,8])"), "shape"},
      {"shape not a list", tensor(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), "shape"},
      {"negative extent", tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "extent"},
      {"fractional extent", tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), "extent"},
      {"extent beyond 64 bits",
       tensor(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8])"), "extent"},
      {"extent beyond 63 bits",
       tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])"), "63 bits"},
      {"overflowing product", tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"),
       "shape"},
      {"shape against bytes", tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), "needs 12 bytes"},
      {"no offsets", tensor(R"("dtype":"F32","shape":[2])"), "data_offsets"},
      {"one offset", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), "data_offsets"},
      {"negative offset", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), "data_offsets[0]"},
      {"backwards", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "backwards"},
      {"beyond the end", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,16])"), "end at 16"},
      {"hole", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), "belong to no tensor"},
      {"rest", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), "after the last tensor"},
      {"truncated data", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", "1234"),
       "4 bytes of data"},
      {"unknown field", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)"), "x"},
      {"overlap",
       file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
               "12345678"),
       "overlap"},
      {"metadata not an object", file_of(R"({"__metadata__":3})", ""), "__metadata__"},
      {"metadata not text", file_of(R"({"__metadata__":{"step":3}})", ""), "__metadata__.step"},
  };
  for (const Case& bad : cases) {
    EXPECT_TRUE(mentions(error_of_content(bad.content), {"bad.safetensors", bad.message})) << bad.what;
  }
}

TEST(Safetensors, RefusesWhatIsNotAFile) {
  const TemporaryFolder folder;
  EXPECT_TRUE(mentions(error_text([&] { SafetensorsFile{folder.path()}; }), {"not a regular file"}));
  EXPECT_TRUE(mentions(error_text([&] { SafetensorsFile{folder / "none"}; }), {"cannot open"}));
}

TEST(Safetensors, SurvivesAnyCorruptedByte) {
  const std::string good = file_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678");
  const TemporaryFolder folder;
  const Philox random(7, 7);
  for (std::size_t i = 0; i < 600; ++i) {
    std::string bad = good.substr(0, i % 3 == 0 ? random.bits(3 * i) % good.size() : good.size());
    if (!bad.empty()) {
      bad[random.bits(3 * i + 1) % bad.size()] = static_cast<char>(random.bits(3 * i + 2));
    }
    const auto path = folder.write("fuzz.safetensors", bad);
    try {
      const SafetensorsFile file(path);
      for (const StoredTensor& tensor : file.tensors()) {
        EXPECT_LE(tensor.bytes(), 8);
      }
    } catch (const Error&) {  // the only way to refuse
    }
  }
}

TEST(Safetensors, ReadingAFileCutShortAfterOpeningIsAnError) {
  const TemporaryFolder folder;
  const auto path = folder.write(
      "w.safetensors", file_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678"));
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_TRUE(mentions(error_text([&] { (void)file.read_f32("w"); }), {"cut short"}));
}

TEST(Safetensors, ReadsHuggingFacesFile) {
  const SafetensorsFile file(EXPEDITE_FIXTURES "/hf/mixtral/expected.safetensors");
  EXPECT_EQ(file.tensor("logits").shape, (std::vector<std::int64_t>{2, 24, 300}));
  EXPECT_EQ(file.read_i64("input_ids").size(), 48U);
  EXPECT_EQ(file.read_f32("loss").size(), 1U);
}

}  // namespace
}  // namespace expedite::hf
