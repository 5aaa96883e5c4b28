#include "bench/kernel_cases.h"

#include <fmt/format.h>

#include <iterator>
#include <span>

#include "bench/case_builders.h"

namespace expedite::bench {
namespace {

/// Every kernel's, made once: parsed lines point to its grammars.
const std::vector<CaseBuilder>& builders() {
  static const std::vector<CaseBuilder> all = [] {
    std::vector<CaseBuilder> result;
    for (const auto& family :
         {product_builders(), attention_builders(), row_builders(), routing_builders()}) {
      result.insert(result.end(), family.begin(), family.end());
    }
    return result;
  }();
  return all;
}

const std::vector<CaseGrammar>& grammars() {
  static const std::vector<CaseGrammar> all = [] {
    std::vector<CaseGrammar> result;
    for (const CaseBuilder& builder : builders()) {
      result.push_back(builder.grammar);
    }
    return result;
  }();
  return all;
}

/// A case of the standing list, and the names under which it has always been printed.
struct ListedCase {
  std::string line;
  std::string name;
  std::string shape;
};

void add_matmuls(std::vector<ListedCase>& cases) {
  for (const char* type : {"bf16", "f32"}) {
    const std::string shape = fmt::format("{} 2048x1024x1024", type);
    cases.push_back({"matmul " + shape, "matmul", shape});
    cases.push_back({"matmul weight_grad " + shape + " accumulate", "matmul weight grad", shape});
  }
  // The last is a router.
  for (const char* shape :
       {"bf16 2048x3072x1024", "bf16 1000x1024x1024", "bf16 16x1024x1024", "f32 2048x16x1024"}) {
    cases.push_back({fmt::format("matmul {}", shape), "matmul", shape});
  }
}

/// The three products of one expert projection over 8192 rows; `skew` gives the first expert half of them.
void add_grouped_matmuls(std::vector<ListedCase>& cases, const char* type, const char* projection,
                         const char* sizes, bool skew) {
  const std::string operands =
      fmt::format("{} {} {}", type, sizes, skew ? "rows=4096,1000,800,700,600,500,300,196" : "E=8");
  const std::string shape = fmt::format("{} {} {} E=8{}", type, projection, sizes, skew ? " skewed" : "");
  cases.push_back({"grouped_matmul " + operands, "grouped matmul", shape});
  cases.push_back({"grouped_matmul input_grad " + operands, "grouped matmul dX", shape});
  cases.push_back({"grouped_matmul weight_grad " + operands + " accumulate", "grouped matmul dW", shape});
}

void add_rows(std::vector<ListedCase>& cases, const char* type) {
  for (const bool weighted : {false, true}) {
    const std::string name = weighted ? "weighted swiglu" : "swiglu";
    const std::string shape = fmt::format("{} R=65536 F=512", type);
    const std::string sizes = fmt::format("{} 65536x512{}", type, weighted ? " weighted" : "");
    cases.push_back({"swiglu " + sizes, name, shape});
    cases.push_back({"swiglu backward " + sizes, name + " backward", shape});
  }
  const std::string norm = fmt::format("{} T=65536 H=1024", type);
  cases.push_back({fmt::format("rms_norm {} 65536x1024", type), "rms_norm", norm});
  cases.push_back({fmt::format("rms_norm backward {} 65536x1024", type), "rms_norm backward", norm});
  const std::string heads = fmt::format("{} T=2048 16 heads of 64", type);
  cases.push_back({fmt::format("attention {} 2048x16x64", type), "attention", heads});
  cases.push_back({fmt::format("attention backward {} 2048x16x64", type), "attention backward", heads});
}

/// What single families of models need: gpt-oss, DeepSeek.
void add_single_families(std::vector<ListedCase>& cases) {
  const std::string rows = "bf16 R=65536 F=512";
  cases.push_back({"swiglu bf16 65536x512 weighted clamped", "clamped swiglu", rows});
  cases.push_back({"swiglu backward bf16 65536x512 weighted clamped", "clamped swiglu backward", rows});
  const std::string blocks = "bf16 R=65536 N=1024 E=32";
  cases.push_back({"grouped_bias bf16 65536x1024 E=32 weighted", "grouped bias", blocks});
  cases.push_back(
      {"grouped_bias weight_grad bf16 65536x1024 E=32 weighted", "grouped bias weight grad", blocks});
  const std::string heads = "bf16 T=2048 16 heads of 192, values of 128";
  cases.push_back({"attention bf16 2048x16x192 value_dim=128", "attention", heads});
  cases.push_back({"attention backward bf16 2048x16x192 value_dim=128", "attention backward", heads});
}

std::vector<ListedCase> listed_cases() {
  std::vector<ListedCase> cases;
  add_matmuls(cases);
  for (const bool skew : {false, true}) {
    add_grouped_matmuls(cases, "bf16", "gate_up", "8192x1024x1024", skew);
    add_grouped_matmuls(cases, "bf16", "down", "8192x1024x512", skew);
  }
  add_grouped_matmuls(cases, "f32", "gate_up", "8192x1024x1024", false);
  cases.push_back({"streaming_copy bf16 100663296", "streaming copy", "n=100663296"});
  for (const int tokens : {2048, 32768}) {
    const std::string shape = fmt::format("bf16 T={} H=1024 E=16 k=4", tokens);
    cases.push_back({fmt::format("permute bf16 {}x1024 E=16 k=4", tokens), "permute", shape});
    cases.push_back({fmt::format("unpermute bf16 {}x1024 E=16 k=4 residual", tokens), "unpermute", shape});
  }
  add_rows(cases, "bf16");
  add_rows(cases, "f32");
  add_single_families(cases);
  cases.push_back({"cross_entropy bf16 1024x1024x16384", "cross entropy", "bf16 T=1024 H=1024 V=16384"});
  cases.push_back({"adamw bf16 16777216", "adamw", "n=16777216"});
  return cases;
}

}  // namespace

KernelCase kernel_case(std::string_view line) {
  const CaseText text = parse_case(line, grammars());
  const auto index = std::distance(grammars().data(), text.grammar);
  KernelCase result = builders()[static_cast<std::size_t>(index)].make(text);
  const std::size_t shape = text.text.find(std::string(name_of(text.dtype)) + ' ');
  result.name = text.text.substr(0, shape - 1);
  result.shape = text.text.substr(shape);
  return result;
}

std::string case_help() {
  std::string text = "a case: kernel [direction] type sizes [key=value ...] [flag ...]\n";
  for (const CaseGrammar& grammar : grammars()) {
    text += '\n' + describe(grammar);
  }
  return text;
}

std::vector<KernelCase> kernel_cases() {
  std::vector<KernelCase> cases;
  for (const ListedCase& listed : listed_cases()) {
    cases.push_back(kernel_case(listed.line));
    cases.back().name = listed.name;
    cases.back().shape = listed.shape;
  }
  return cases;
}

}  // namespace expedite::bench
