// The kernels that a case can name, by family: each a grammar, and what makes a case of a line.
#pragma once

#include <vector>

#include "bench/case_grammar.h"
#include "bench/kernel_case.h"

namespace expedite::bench {

/// What most kernels take.
inline const std::vector<DType> kFloats = {DType::bf16, DType::f32};
inline const std::vector<std::string_view> kDirections = {"forward", "backward"};

struct CaseBuilder {
  CaseGrammar grammar;
  /// Throws Error where the line's numbers do not fit each other.
  KernelCase (*make)(const CaseText& text);
};

[[nodiscard]] std::vector<CaseBuilder>
product_builders();  // matmul, grouped_matmul, grouped_bias, cross_entropy
[[nodiscard]] std::vector<CaseBuilder> attention_builders();  // attention, rotary
[[nodiscard]] std::vector<CaseBuilder> row_builders();  // rms_norm, swiglu, add_bias, adamw, streaming_copy
[[nodiscard]] std::vector<CaseBuilder> routing_builders();  // router, permute, unpermute, embedding

}  // namespace expedite::bench
