#include "bench/kernel_cases.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/case_grammar.h"
#include "bench/check_kernel.h"
#include "bench/kernels.h"
#include "tests/error_of.h"

namespace expedite::bench {
namespace {

const std::vector<CaseGrammar>& toy() {
  static const std::vector<CaseGrammar> grammars = {
      {"mix",
       {"forward", "backward"},
       {DType::bf16, DType::f32},
       "MxN",
       {{.name = "E", .standard = 8}, {.name = "rows", .least = 0, .list = true}},
       {{"even", "one"}, {"loud"}},
       "mix bf16 2x3 E=4"}};
  return grammars;
}

TEST(CaseGrammar, ReadsEveryPart) {
  const CaseText text = parse_case("  mix  backward f32 0x12 loud rows=3,0,17 E=2 ", toy());
  EXPECT_EQ(text.text, "mix backward f32 0x12 loud rows=3,0,17 E=2");
  EXPECT_TRUE(text.is("backward") && text.is("loud"));
  EXPECT_FALSE(text.is("forward") || text.is("one"));
  EXPECT_EQ(text.dtype, DType::f32);
  EXPECT_EQ(text.sizes, (std::vector<std::int64_t>{0, 12}));
  EXPECT_EQ(text.number("E"), 2);
  EXPECT_EQ(text.list("rows"), (std::vector<std::int64_t>{3, 0, 17}));
}

TEST(CaseGrammar, WhatIsNotSaidHasItsUsualValue) {
  const CaseText text = parse_case("mix bf16 2x3", toy());
  EXPECT_TRUE(text.is("forward"));
  EXPECT_EQ(text.number("E"), 8);
  EXPECT_FALSE(text.has("E"));
  EXPECT_TRUE(text.list("rows").empty() && text.flags.empty());
}

TEST(CaseGrammar, ErrorsNameTheWordWhatIsLegalAndAnExample) {
  const struct {
    const char* line;
    const char* word;
    const char* legal;
  } bad[] = {{"", "the end of the line", "a kernel (mix)"},
             {"mux bf16 2x3", "'mux'", "a kernel (mix)"},
             {"mix sideways bf16 2x3", "'sideways'", "a direction (forward, backward) or a type (bf16, f32)"},
             {"mix forward f16 2x3", "'f16'", "a type (bf16, f32)"},
             {"mix bf16", "the end of the line", "sizes MxN"},
             {"mix bf16 2x3x4", "'2x3x4'", "sizes MxN"},
             {"mix bf16 2x", "'2x'", "sizes MxN"},
             {"mix bf16 -2x3", "'-2x3'", "sizes MxN"},
             {"mix bf16 2x99999999999999999999", "'2x99999999999999999999'", "below 2^31"},
             {"mix bf16 2x3 F=1", "'F=1'", "E=N, rows=N,N,..., even | one, loud"},
             {"mix bf16 2x3 E=0", "'E=0'", "E=N with whole numbers from 1 on"},
             {"mix bf16 2x3 E=1,2", "'E=1,2'", "E=N"},
             {"mix bf16 2x3 rows=1,,2", "'rows=1,,2'", "rows=N,N,... with whole numbers from 0 on"},
             {"mix bf16 2x3 E=1 E=2", "'E=2'", "E=N once"},
             {"mix bf16 2x3 quiet", "'quiet'", "E=N, rows=N,N,..., even | one, loud"},
             {"mix bf16 2x3 even one", "'one'", "one of even | one, once,"}};
  for (const auto& each : bad) {
    const std::string error = error_of([&] { (void)parse_case(each.line, toy()); });
    EXPECT_NE(error.find(std::string(each.word) + " where "), std::string::npos) << error;
    EXPECT_NE(error.find(each.legal), std::string::npos) << error;
    EXPECT_NE(error.find("an example: mix bf16 2x3 E=4"), std::string::npos) << error;
  }
}

TEST(KernelCases, NumbersThatDoNotFitEachOtherAreErrors) {
  for (const char* line :
       {"grouped_matmul bf16 21x4x4 rows=3,0,17", "grouped_matmul bf16 20x4x4 E=2 rows=3,0,17",
        "grouped_matmul bf16 20x4x4 rows=3,0,17 one", "grouped_matmul bf16 20x4x4 accumulate",
        "matmul weight_grad bf16 2x2x2 tt", "attention bf16 8x4x16 kv_heads=3",
        "attention bf16 8x4x16 lengths=3", "attention bf16 8x0x16", "rotary f32 4x2x6 R=5",
        "rotary f32 4x2x6 R=6 first=2", "router f32 4x8 k=9", "router f32 4x9 k=1 groups=2",
        "router f32 4x8 k=5 groups=2 top_groups=1", "permute f32 4x8 E=2 k=3", "rms_norm f32 3x0",
        "cross_entropy f32 3x4x0", "embedding f32 3x4x0"}) {
    EXPECT_EQ(error_of([&] { (void)kernel_case(line); }).find(std::string("case '") + line), 0U) << line;
  }
}

/// Odd shapes, and shapes without rows, of every kernel.
std::vector<std::string> small_lines() {
  std::vector<std::string> lines;
  for (const std::string type : {"bf16", "f32"}) {
    for (const char* sizes : {"33x17x40", "0x5x7", "1x1x1", "5x0x3", "5x3x0"}) {
      for (const char* layout : {"nt", "nn", "tn", "tt accumulate"}) {
        lines.push_back("matmul " + type + " " + sizes + " " + layout);
      }
      lines.push_back("matmul input_grad " + type + " " + sizes);
      lines.push_back("matmul weight_grad " + type + " " + sizes);
      lines.push_back("matmul weight_grad " + type + " " + sizes + " accumulate");
    }
    for (const char* rows : {"57x24x40 E=5 skewed", "57x24x40 E=5", "57x24x40 one", "20x9x7 rows=3,0,17",
                             "0x9x7 E=2", "0x9x7 rows=0,0 "}) {
      for (const char* direction : {"forward", "input_grad", "weight_grad"}) {
        lines.push_back(std::string("grouped_matmul ") + direction + " " + type + " " + rows);
      }
      lines.push_back("grouped_matmul weight_grad " + type + " " + rows + " accumulate");
    }
    for (const char* rows :
         {"57x24 E=5 skewed", "57x24 one weighted", "20x9 rows=3,0,17 weighted", "0x9 E=2"}) {
      lines.push_back("grouped_bias " + type + " " + rows);
      lines.push_back("grouped_bias weight_grad " + type + " " + rows);
    }
    lines.push_back("cross_entropy " + type + " 13x24x37");
    lines.push_back("cross_entropy " + type + " 0x24x37");
    for (const char* direction : {"", "backward "}) {
      const std::string begin = direction + type + " ";
      for (const char* shape : {"40x4x20 kv_heads=2 lengths=17,0,23", "37x3x16 window=5", "0x2x8",
                                "19x4x24 kv_heads=1 value_dim=8 sinks window=7 lengths=1,18"}) {
        lines.push_back("attention " + begin + shape);
      }
      for (const char* shape :
           {"13x3x20", "13x3x20 R=8", "13x3x20 R=8 first=5 neighbours", "0x2x8", "5x2x8 R=0"}) {
        lines.push_back("rotary " + begin + shape);
      }
      for (const char* shape : {"13x37", "0x37", "1x1"}) {
        lines.push_back("rms_norm " + begin + shape);
        lines.push_back("swiglu " + begin + shape);
        lines.push_back("swiglu " + begin + shape + " weighted clamped");
        lines.push_back("add_bias " + begin + shape);
      }
      lines.push_back("embedding " + begin + "29x13x7");
      lines.push_back("embedding " + begin + "0x13x7");
    }
    for (const char* shape : {"29x13 E=5 k=3", "0x13 E=5 k=3", "7x1 E=1 k=1"}) {
      lines.push_back("permute " + type + " " + shape);
      lines.push_back("unpermute " + type + " " + shape);
      lines.push_back("unpermute " + type + " " + shape + " residual");
    }
    for (const char* count : {"1001", "0"}) {
      lines.push_back("adamw " + type + " " + count);
      lines.push_back("streaming_copy " + type + " " + count);
    }
  }
  for (const char* direction : {"", "backward "}) {
    for (const char* shape :
         {"37x16 k=3", "37x16 k=3 sigmoid bias", "37x24 k=4 groups=4 top_groups=2 sigmoid bias",
          "37x7 k=7 unnormalized", "0x16 k=3"}) {
      lines.push_back(std::string("router ") + direction + "f32 " + shape);
    }
  }
  return lines;
}

TEST(KernelCases, EveryKernelIsWhatItsReferenceSays) {
  for (const std::string& line : small_lines()) {
    const KernelCheck check = check_kernel(kernel_case(line));
    EXPECT_EQ(check.failure, "") << line;
    EXPECT_LE(check.error, check.tolerance) << line;
  }
}

TEST(KernelCases, HelpNamesEveryKernelAndItsExamplesAreCases) {
  const std::string help = case_help();
  const std::string mark = "for example  ";
  std::size_t examples = 0;
  for (std::size_t at = help.find(mark); at != std::string::npos; at = help.find(mark, at + 1)) {
    const std::string line = help.substr(at + mark.size(), help.find('\n', at) - at - mark.size());
    EXPECT_GT(kernel_case(line).work, 0.0) << line;
    ++examples;
  }
  EXPECT_EQ(examples, 15U);
}

/// The case with an element of its first result that moves after each run: by a hundredth of its scale.
KernelCase spoilt(const KernelCase& subject) {
  KernelCase result = subject;
  result.prepare = [prepare = subject.prepare] {
    PreparedKernel kernel = prepare();
    const auto results = kernel.results;
    kernel.results = [results] {
      std::vector<KernelResult> all = results();
      all[0].got = [got = all[0].got, wanted = all[0].wanted] {
        reference::Matrix moved = got();
        double& element = moved(moved.rows - 1, moved.columns / 2);
        element += 0.25 * std::max(1.0, std::abs(element));
        return moved;
      };
      return all;
    };
    return kernel;
  };
  return result;
}

TEST(KernelCases, AWrongElementIsFoundAndSaidAndFails) {
  for (const std::string& line : small_lines()) {
    const KernelCase subject = kernel_case(line);
    const reference::Matrix first = subject.prepare().results()[0].wanted;
    if (first.values.empty() || line.starts_with("cross_entropy")) {  // its loss is one sum, larger than that
      continue;
    }
    const KernelCheck check = check_kernel(spoilt(subject));
    if (check.tolerance * static_cast<double>(first.columns) > 1.0) {
      continue;
    }
    const std::string where = fmt::format("row {}, column {}: got ", first.rows - 1, first.columns / 2);
    EXPECT_NE(check.failure.find(where), std::string::npos) << line << ": " << check.failure;
    EXPECT_GT(check.error, check.tolerance) << line;
  }
}

TEST(KernelCases, AWrongResultFailsTheBenchmark) {
  const KernelCase good = kernel_case("rotary f32 1x1x2");
  testing::internal::CaptureStdout();
  const int passed = bench_kernel_cases({good}, true, {});
  const int failed = bench_kernel_cases({spoilt(good), good}, true, {});
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(passed, 0);
  EXPECT_EQ(failed, 1);
  EXPECT_NE(printed.find("FAILED: 1 of 2 elements of x are wrong"), std::string::npos) << printed;
}

TEST(KernelCases, TheListCountsTheWorkOfItsShapes) {
  const std::vector<KernelCase> cases = kernel_cases();
  const auto work_of = [&](std::string_view name, std::string_view shape) {
    const auto found = std::ranges::find_if(
        cases, [&](const KernelCase& each) { return each.name == name && each.shape == shape; });
    return found == cases.end() ? -1.0 : found->work;
  };
  EXPECT_EQ(work_of("grouped matmul dW", "bf16 down 8192x1024x512 E=8 skewed"), 2.0 * 8192 * 1024 * 512);
  EXPECT_EQ(work_of("attention backward", "f32 T=2048 16 heads of 64"), 5.0 * 2048 * 2048 * 1024);
  EXPECT_EQ(work_of("weighted swiglu backward", "bf16 R=65536 F=512"), 65536.0 * (512 * 2 * 5 + 8));
  EXPECT_EQ(work_of("unpermute", "bf16 T=2048 H=1024 E=16 k=4"), 2048.0 * (1024 * 2 * 6 + 4 * 8));
  EXPECT_EQ(work_of("adamw", "n=16777216"), 34.0 * (16 << 20));
}

}  // namespace
}  // namespace expedite::bench
