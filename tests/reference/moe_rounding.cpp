#include "tests/reference/moe_rounding.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "tests/reference/moe_arithmetic.h"

namespace expedite::reference {
namespace {

using hf::ParameterNames;

BoundedRow exactly(std::span<const double> values) {
  BoundedRow row;
  for (const double value : values) {
    row.push_back({value, 0.0});
  }
  return row;
}

void forget_errors(BoundedRow& row) {
  for (Bounded& x : row) {
    x.error = 0.0;
  }
}

/// Weight gradients: sums over tokens, in f32 and in any order.
class WeightGradients {
 public:
  /// gradient[rows, columns] of `name` += the outer product of a row's two sides.
  void add(const std::string& name, const BoundedRow& rows, const BoundedRow& columns) {
    std::vector<BoundedSum>& sums = sums_[name];
    sums.resize(rows.size() * columns.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t j = 0; j < columns.size(); ++j) {
        sums[i * columns.size() + j].add(rows[i] * columns[j]);
      }
    }
  }
  void add(const std::string& name, const BoundedRow& values) {
    std::vector<BoundedSum>& sums = sums_[name];
    sums.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      sums[i].add(values[i]);
    }
  }
  [[nodiscard]] std::map<std::string, BoundedRow> results() const {
    std::map<std::string, BoundedRow> results;
    for (const auto& [name, sums] : sums_) {
      for (const BoundedSum& sum : sums) {
        results[name].push_back(sum.result());
      }
    }
    return results;
  }

 private:
  std::map<std::string, std::vector<BoundedSum>> sums_;
};

/// One token's way through the layer and back.
class TokenPass {
 public:
  TokenPass(const MoeArithmetic& layer, std::span<const double> x, std::span<const double> dy,
            Roundings roundings)
      : layer_(layer), x_(x), dy_(dy), roundings_(roundings), routed_(layer.route(x)) {
    for (std::size_t j = 0; j < routed_.experts.size(); ++j) {
      kept_.push_back(layer.expert_forward(routed_.normed, expert(j), routed_.weights[j]));
      gradients_.push_back(layer.expert_backward(dy, kept_.back(), expert(j), routed_.weights[j]));
      dweights_.push_back(gradients_.back().weight);
    }
    dlogits_ = layer.route_backward(routed_, dweights_);
    if (layer.config().shared_expert_intermediate_size > 0) {
      pass_shared();
    }
  }

  [[nodiscard]] BoundedRow output(const moe::ExpertLayout& layout, int rank) const {
    std::vector<BoundedRow> addends;
    for (const BoundedActivations& kept : kept_) {
      addends.push_back(kept.output);
    }
    BoundedRow residual = exactly(x_);
    for (std::size_t h = 0; h < shared_.output.size(); ++h) {
      residual[h] = layer_.stored(residual[h] + shared_.output[h]);
    }
    return sum(std::move(addends), std::move(residual), layout, rank);
  }

  /// The gradient of the normed row, which is where that of the input comes from.
  [[nodiscard]] BoundedRow grad_normed(const moe::ExpertLayout& layout, int rank) const {
    std::vector<BoundedRow> addends;
    for (const BoundedExpertGradients& gradients : gradients_) {
      addends.push_back(gradients.input);
    }
    BoundedRow result = sum(std::move(addends), shared_gradients_.input, layout, rank);
    const std::span<const double> router = layer_.weight(layer_.names().router(0));
    for (std::size_t h = 0; h < result.size(); ++h) {
      Bounded through = dot(dlogits_, column(router, dlogits_.size(), h));
      through.error = roundings_ == Roundings::all ? through.error : 0.0;
      result[h] = layer_.stored(result[h] + through);
    }
    return result;
  }
  [[nodiscard]] BoundedRow grad_input(const BoundedRow& grad_normed) const {
    return layer_.norm_backward(x_, dy_, routed_, grad_normed);
  }

  void add_expert_gradients(WeightGradients& gradients) const {
    const hf::ParameterNames& names = layer_.names();
    for (std::size_t j = 0; j < routed_.experts.size(); ++j) {
      const std::int64_t e = routed_.experts[j];
      gradients.add(names.expert_gate(0, e), gradients_[j].gate, routed_.normed);
      gradients.add(names.expert_up(0, e), gradients_[j].up, routed_.normed);
      gradients.add(names.expert_down(0, e), exactly(dy_), kept_[j].activated);
    }
  }
  void add_dense_gradients(const BoundedRow& grad_normed, WeightGradients& gradients) const {
    const hf::ParameterNames& names = layer_.names();
    gradients.add(names.router(0), dlogits_, routed_.normed);
    BoundedRow through_norm;
    for (std::size_t h = 0; h < x_.size(); ++h) {
      through_norm.push_back(grad_normed[h] * routed_.normal[h]);
    }
    gradients.add(hf::ParameterNames::post_attention_norm(0), through_norm);
    if (shared_.output.empty()) {
      return;
    }
    gradients.add(names.shared_gate(0), shared_gradients_.gate, routed_.normed);
    gradients.add(names.shared_up(0), shared_gradients_.up, routed_.normed);
    gradients.add(names.shared_down(0), exactly(dy_), shared_.activated);
    if (layer_.config().shared_expert_gate) {
      gradients.add(hf::ParameterNames::shared_expert_gate(0), {shared_gradients_.weight}, routed_.normed);
    }
  }

 private:
  [[nodiscard]] SwigluWeights expert(std::size_t j) const { return layer_.expert(routed_.experts[j]); }

  void pass_shared() {
    const bool gated = layer_.config().shared_expert_gate;
    const Bounded gate = gated ? layer_.shared_weight(routed_.normed) : Bounded{1.0, 0.0};
    shared_ = layer_.expert_forward(routed_.normed, layer_.shared(), gate);
    shared_gradients_ = layer_.expert_backward(dy_, shared_, layer_.shared(), gate);
    if (!gated) {
      return;
    }
    Bounded& dlogit = shared_gradients_.weight;
    dlogit = dlogit * (gate * (Bounded{1.0, 0.0} - gate));
    const std::span<const double> weight = layer_.weight(hf::ParameterNames::shared_expert_gate(0));
    for (std::size_t h = 0; h < x_.size(); ++h) {
      Bounded& dx = shared_gradients_.input[h];
      dx = layer_.stored(dx + dlogit * Bounded{weight[h], 0.0});
    }
  }

  [[nodiscard]] BoundedRow sum(std::vector<BoundedRow> addends, BoundedRow residual,
                               const moe::ExpertLayout& layout, int rank) const {
    if (roundings_ == Roundings::from_sums) {
      forget_errors(residual);
      std::ranges::for_each(addends, forget_errors);
    }
    return layer_.combine(addends, routed_, residual, layout, rank);
  }

  const MoeArithmetic& layer_;
  std::span<const double> x_;
  std::span<const double> dy_;
  Roundings roundings_;
  BoundedRouting routed_;
  std::vector<BoundedActivations> kept_;
  std::vector<BoundedExpertGradients> gradients_;
  BoundedRow dweights_;
  BoundedRow dlogits_;
  BoundedActivations shared_;
  BoundedExpertGradients shared_gradients_;
};

}  // namespace

MoeRounding moe_rounding(const ModelConfig& config, const Parameters& parameters, DType dtype,
                         const MoeRows& rows, const moe::ExpertLayout& layout, int rank,
                         Roundings roundings) {
  const MoeArithmetic layer(config, parameters, dtype);
  MoeRounding result;
  WeightGradients gradients;
  for (std::int64_t t = 0; t < rows.input.rows; ++t) {
    const int source = rows.ranks[t];
    const TokenPass pass(layer, rows.input.row(t), rows.grad_output.row(t), roundings);
    result.output.push_back(pass.output(layout, source));
    const BoundedRow grad_normed = pass.grad_normed(layout, source);
    result.grad_input.push_back(pass.grad_input(grad_normed));
    pass.add_expert_gradients(gradients);
    if (source == rank) {
      pass.add_dense_gradients(grad_normed, gradients);
    }
  }
  result.gradients = gradients.results();
  return result;
}

bool chooses_clearly(const ModelConfig& config, const Parameters& parameters, DType dtype,
                     std::span<const double> input) {
  const MoeArithmetic layer(config, parameters, dtype);
  const BoundedRouting routed = layer.route(input);
  const std::span<const double> bias = layer.selection_bias();
  double worst_chosen = std::numeric_limits<double>::infinity();
  double best_other = -worst_chosen;
  for (std::size_t e = 0; e < routed.scores.size(); ++e) {
    const Bounded score = rounded(routed.scores[e] + Bounded{bias.empty() ? 0.0 : bias[e], 0.0}, kF32Unit);
    if (std::ranges::count(routed.experts, static_cast<std::int64_t>(e)) > 0) {
      worst_chosen = std::min(worst_chosen, score.value - score.error);
    } else {
      best_other = std::max(best_other, score.value + score.error);
    }
  }
  return worst_chosen > best_other;
}

}  // namespace expedite::reference
