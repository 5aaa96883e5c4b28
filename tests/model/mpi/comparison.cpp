#include "tests/model/mpi/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace expedite::model::tests {
namespace {

double largest(std::span<const double> values) {
  double result = 0.0;
  for (const double value : values) {
    result = std::max(result, std::abs(value));
  }
  return result;
}

}  // namespace

Comparison::Comparison(const Problem& problem, const BalanceOptions& balance, double tolerance)
    : problem_(problem),
      balance_(balance),
      tolerance_(tolerance),
      expected_(expected_step(problem.config, problem.weights, problem.batch, balance)) {
  for (const auto& [name, gradient] : expected_.gradients) {
    largest_gradient_ = std::max(largest_gradient_, largest(gradient));
  }
}

Observed Comparison::run(DType dtype, const comm::ProcessGrid& grid, const schedule::EpPlan& plan) const {
  SCOPED_TRACE(fmt::format("EP {}", grid.expert_parallel().size()));
  Rig rig(problem_.config, dtype, grid, State::gradients, plan);
  rig.set_weights(problem_.weights);
  Observed observed;
  rig.engine().set_observer(observed.observer());
  const StepResult result = rig.step(problem_.batch, {.balance = balance_}, false);
  rig.engine().set_observer(nullptr);
  compare_result(result);
  compare_observed(observed, grid.rank());
  compare_exchanges(rig);
  for (const auto& [name, gradient] : rig.gradients()) {
    EXPECT_LE(relative_error(gradient, expected_.gradients.at(name), noise_of(name)), tolerance_)
        << "gradient of " << name;
  }
  if (grid.expert_parallel().size() == grid.size()) {  // without backward: the same kernels, the same bits
    EXPECT_EQ(rig.evaluate(problem_.batch).loss, result.loss);
  }
  return observed;
}

double Comparison::noise_of(const std::string& name) const {
  const std::size_t attention = name.find("self_attn.");
  if (attention != std::string::npos) {
    const std::string values = name.substr(0, attention) + "self_attn.v_proj.weight";
    return std::max(1e-3 * largest_gradient_, 0.25 * largest(expected_.gradients.at(values)));
  }
  return (name.ends_with("gate.weight") ? 0.1 : 1e-3) * largest_gradient_;
}

void Comparison::compare_result(const StepResult& result) const {
  EXPECT_NEAR(result.loss, expected_.loss, tolerance_ * expected_.loss);
  EXPECT_NEAR(result.aux_loss, expected_.aux_loss, tolerance_ * expected_.aux_loss);
  EXPECT_NEAR(result.z_loss, expected_.z_loss, 2 * tolerance_ * expected_.z_loss);
  EXPECT_EQ(result.expert_loads, expected_.expert_loads);
  EXPECT_EQ(result.targets, problem_.batch.targets());
  double squares = 0.0;
  for (const auto& [name, gradient] : expected_.gradients) {
    for (const double value : gradient) {
      squares += value * value;
    }
  }
  EXPECT_NEAR(result.gradient_norm, std::sqrt(squares), tolerance_ * std::sqrt(squares));
}

void Comparison::compare_observed(const Observed& observed, int rank) const {
  std::size_t compared = 0;
  for (int i = 0; i < problem_.batch.micro_batches(); ++i) {
    const reference::Result& expected = expected_.micro_batches[static_cast<std::size_t>(i)];
    const auto compare = [&](const std::string& name, const reference::Matrix& all) {
      const auto entry = observed.values().find({name, i});
      ASSERT_NE(entry, observed.values().end()) << name;
      const auto begin = problem_.batch.tokens_before(i, rank) * all.columns;
      const auto end = problem_.batch.tokens_before(i, rank + 1) * all.columns;
      const auto mine = std::span(all.values)
                            .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
      EXPECT_LE(relative_error(entry->second, mine, largest(all.values)), tolerance_)
          << name << " of micro-batch " << i;
      ++compared;
    };
    for (std::size_t layer = 0; layer < expected.hidden_states.size(); ++layer) {
      compare(fmt::format("hidden_states.{}", layer), expected.hidden_states[layer]);
      if (problem_.config.sparse[layer]) {
        compare(fmt::format("router_logits.{}", layer), expected.router_logits[layer]);
      }
    }
    compare("final_hidden_state", expected.final_hidden_state);
    compare("logits", expected.logits);
  }
  EXPECT_EQ(compared, observed.values().size());
}

void Comparison::compare_exchanges(Rig& rig) const {
  const auto events = rig.engine().trace().events();
  const auto exchanges = std::ranges::count(events, schedule::Op::metadata, &tracing::TraceEvent::op);
  const auto sparse_layers = std::ranges::count(problem_.config.sparse, true);
  EXPECT_EQ(exchanges,
            rig.grid().expert_parallel().size() > 1 ? sparse_layers * problem_.batch.micro_batches() : 0);
}

}  // namespace expedite::model::tests
