// An MoE layer as the model computes it, step by step, with a bound on the rounding error of every number.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "expedite/architecture/model_config.h"
#include "expedite/moe/expert_layout.h"
#include "expedite/tensor/dtype.h"
#include "tests/reference/bounded.h"
#include "tests/reference/matrix.h"
#include "tests/reference/parameters.h"

namespace expedite::reference {

/// The tokens of all ranks of an expert-parallel group, one rank behind the other. All values are exact in
/// the type that the layer computes in.
struct MoeRows {
  Matrix input;                 // [T, H]
  Matrix grad_output;           // [T, H]
  std::vector<int> ranks = {};  // [T] whose token it is
};

struct MoeRounding {
  std::vector<BoundedRow> output;      // [T] of [H]
  std::vector<BoundedRow> grad_input;  // [T] of [H]
  /// By Hugging Face name: of experts from all tokens, of what every rank holds from the tokens of `rank`.
  std::map<std::string, BoundedRow> gradients;
};

/// Which roundings count: all, or only those in and behind the sums over a token's experts, which are all in
/// which two dispatchers can differ.
enum class Roundings : std::uint8_t { all, from_sums };

/// Layer 0 of a model. The layout says on whose behalf which partial sums are made:
///
///   alltoall         none: every expert's row goes back as it is
///   zero_redundancy  one for each rank that holds more than one of a token's experts
///   hierarchical     one for each such rank, and on top one for each other node of more than one such addend
///
/// A partial sum is made in f32 and rounded once to `dtype`; the sum of all of them, with the residual and
/// the shared expert's output, once more. So dispatchers differ by one unit of each partial sum.
[[nodiscard]] MoeRounding moe_rounding(const ModelConfig& config, const Parameters& parameters, DType dtype,
                                       const MoeRows& rows, const moe::ExpertLayout& layout, int rank,
                                       Roundings roundings);

/// Whether rounding cannot change the experts that a token chooses; input: [H].
[[nodiscard]] bool chooses_clearly(const ModelConfig& config, const Parameters& parameters, DType dtype,
                                   std::span<const double> input);

}  // namespace expedite::reference
