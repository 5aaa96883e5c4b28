// The steps of an MoE layer, rounded where the model rounds them, each result with a bound on its error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "expedite/architecture/model_config.h"
#include "expedite/hf/names.h"
#include "expedite/moe/expert_layout.h"
#include "expedite/tensor/dtype.h"
#include "tests/reference/bounded.h"
#include "tests/reference/parameters.h"
#include "tests/reference/swiglu.h"

namespace expedite::reference {

/// Of one token.
struct BoundedRouting {
  BoundedRow normal;                  // [H], x / rms(x)
  BoundedRow normed;                  // [H], as experts see it
  BoundedRow logits;                  // [E]
  BoundedRow scores;                  // [E]
  std::vector<std::int64_t> experts;  // [k]
  BoundedRow weights;                 // [k]
};

/// What an expert makes of one row.
struct BoundedActivations {
  BoundedRow gate;       // [F]
  BoundedRow up;         // [F]
  BoundedRow activated;  // [F], weighted
  BoundedRow output;     // [H]
};
struct BoundedExpertGradients {
  BoundedRow gate;   // [F]
  BoundedRow up;     // [F]
  BoundedRow input;  // [H]
  Bounded weight;    // of the row's weight
};

/// Of layer 0 of a model whose numbers are stored in `dtype`.
class MoeArithmetic {
 public:
  /// Both must outlive it.
  MoeArithmetic(const ModelConfig& config, const Parameters& parameters, DType dtype);

  [[nodiscard]] BoundedRouting route(std::span<const double> x) const;
  [[nodiscard]] BoundedActivations expert_forward(const BoundedRow& x, const SwigluWeights& weights,
                                                  const Bounded& row_weight) const;
  [[nodiscard]] BoundedExpertGradients expert_backward(std::span<const double> dy,
                                                       const BoundedActivations& kept,
                                                       const SwigluWeights& weights,
                                                       const Bounded& row_weight) const;
  /// d logits from d weights.
  [[nodiscard]] BoundedRow route_backward(const BoundedRouting& routed, const BoundedRow& dweights) const;
  /// The gradient of the layer's input from that of the normed row.
  [[nodiscard]] BoundedRow norm_backward(std::span<const double> x, std::span<const double> dy,
                                         const BoundedRouting& routed, const BoundedRow& dnormed) const;
  /// A token's rank's sum of the rows of its k experts, by way of partial sums, and a residual if there is
  /// one.
  [[nodiscard]] BoundedRow combine(const std::vector<BoundedRow>& addends, const BoundedRouting& routed,
                                   const BoundedRow& residual, const moe::ExpertLayout& layout,
                                   int rank) const;

  [[nodiscard]] Bounded stored(const Bounded& x) const { return rounded(x, unit_); }

  [[nodiscard]] std::span<const double> weight(const std::string& name) const { return parameters_.at(name); }
  [[nodiscard]] SwigluWeights expert(std::int64_t e) const {
    return {weight(names_.expert_gate(0, e)), weight(names_.expert_up(0, e)),
            weight(names_.expert_down(0, e))};
  }
  [[nodiscard]] SwigluWeights shared() const {
    return {weight(names_.shared_gate(0)), weight(names_.shared_up(0)), weight(names_.shared_down(0))};
  }
  /// [E], or empty.
  [[nodiscard]] std::span<const double> selection_bias() const {
    return config_.expert_bias ? weight(names_.selection_bias(0)) : std::span<const double>();
  }
  /// The weight of the shared expert's output: a gate's sigmoid.
  [[nodiscard]] Bounded shared_weight(const BoundedRow& normed) const;
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const hf::ParameterNames& names() const { return names_; }

 private:
  [[nodiscard]] BoundedRow score(const BoundedRow& logits) const;
  [[nodiscard]] BoundedRow weigh(const BoundedRouting& routed) const;
  [[nodiscard]] Bounded silu(const Bounded& x) const;
  [[nodiscard]] Bounded silu_slope(const Bounded& x) const;
  /// Row `index` of a matrix of H columns.
  [[nodiscard]] std::span<const double> row(std::span<const double> matrix, std::size_t index) const {
    const auto columns = static_cast<std::size_t>(config_.hidden_size);
    return matrix.subspan(index * columns, columns);
  }

  const ModelConfig& config_;
  const Parameters& parameters_;
  hf::ParameterNames names_;
  double unit_;
  double sigmoid_error_;
};

}  // namespace expedite::reference
