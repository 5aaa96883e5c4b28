#include "tests/model/mpi/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/reference/bounded.h"

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

double step_tolerance(const ModelConfig& config, DType dtype, schedule::Dispatcher dispatcher,
                      std::int64_t longest_sum) {
  int roundings = 12;  // of a layer
  roundings += config.qk_norm != architecture::QkNorm::none ? 1 : 0;
  roundings += config.qkv_bias ? 1 : 0;
  roundings += config.output_bias ? 1 : 0;
  roundings += config.attention == architecture::AttentionKind::latent ? 4 : 0;
  roundings += config.mlp_bias ? 2 : 0;
  roundings += config.shared_expert_intermediate_size > 0 ? 1 : 0;
  switch (dispatcher) {  // partial sums on a row's way back
    case schedule::Dispatcher::alltoall:
      break;
    case schedule::Dispatcher::zero_redundancy:
      roundings += 1;
      break;
    case schedule::Dispatcher::hierarchical:
    case schedule::Dispatcher::hierarchical_dedup:
      roundings += 2;
      break;
  }
  const double deviation = (dtype == DType::bf16 ? reference::kBf16Unit : reference::kF32Unit) / 2.0;
  const double variance =
      deviation * deviation + static_cast<double>(longest_sum) * reference::kF32Unit * reference::kF32Unit;
  const double there_and_back = 2.0 * roundings * static_cast<double>(config.layers + 1);
  return 6.0 * std::sqrt(there_and_back * variance);
}

Comparison::Comparison(const Problem& problem, const BalanceOptions& balance)
    : problem_(problem),
      balance_(balance),
      expected_(expected_step(problem.config, problem.weights, problem.batch, balance)) {
  for (const auto& [name, gradient] : expected_.gradients) {
    largest_gradient_ = std::max(largest_gradient_, largest(gradient));
  }
}

Observed Comparison::run(DType dtype, const comm::ProcessGrid& grid, const schedule::EpPlan& plan) {
  SCOPED_TRACE(fmt::format("EP {}", grid.expert_parallel().size()));
  const double tolerance = tolerance_of(dtype, plan.dispatcher);
  Rig rig(problem_.config, dtype, grid, State::gradients, plan);
  rig.set_weights(problem_.weights);
  Observed observed;
  rig.engine().set_observer(observed.observer());
  const StepResult result = rig.step(problem_.batch, {.balance = balance_}, false);
  rig.engine().set_observer(nullptr);
  compare_result(result, tolerance);
  compare_observed(observed, grid.rank(), tolerance);
  compare_exchanges(rig);
  for (const auto& [name, gradient] : rig.gradients()) {
    const std::vector<double> expected = rig.held_part(name, expected_.gradients.at(name));
    expect_within(relative_error(gradient, expected, noise_of(name)), tolerance, "gradient of " + name);
  }
  if (grid.expert_parallel().size() == grid.size()) {  // without backward: the same kernels, the same bits
    EXPECT_EQ(rig.evaluate(problem_.batch).loss, result.loss);
  }
  return observed;
}

double Comparison::tolerance_of(DType dtype, schedule::Dispatcher dispatcher) const {
  const ModelConfig& config = problem_.config;
  return step_tolerance(config, dtype, dispatcher,
                        std::max({config.hidden_size, config.intermediate_size, config.moe_intermediate_size,
                                  config.shared_expert_intermediate_size, config.qkv_size(),
                                  config.vocab_size, problem_.batch.tokens()}));
}

double Comparison::noise_of(const std::string& name) const {
  const std::size_t attention = name.find("self_attn.");
  if (attention != std::string::npos) {
    const bool latent = problem_.config.attention == architecture::AttentionKind::latent;
    const std::string values =
        name.substr(0, attention) + (latent ? "self_attn.kv_b_proj.weight" : "self_attn.v_proj.weight");
    return std::max(1e-3 * largest_gradient_, 0.25 * largest(expected_.gradients.at(values)));
  }
  return (name.ends_with("gate.weight") || name.find(".router.") != std::string::npos ? 0.1 : 1e-3) * largest_gradient_;
}

void Comparison::expect_within(double error, double tolerance, const std::string& what) {
  EXPECT_LE(error, tolerance) << what;
  largest_error_ = std::max(largest_error_, error / tolerance);
}

void Comparison::compare_result(const StepResult& result, double tolerance) {
  const auto compare = [&](double ours, double expected, double allowed, const std::string& what) {
    expect_within(ours == expected ? 0.0 : std::abs(ours - expected) / expected, allowed, what);
  };
  double squares = 0.0;
  for (const auto& [name, gradient] : expected_.gradients) {
    for (const double value : gradient) {
      squares += value * value;
    }
  }
  compare(result.loss, expected_.loss, tolerance, "loss");
  compare(result.aux_loss, expected_.aux_loss, tolerance, "auxiliary loss");
  compare(result.z_loss, expected_.z_loss, 2 * tolerance, "z loss");  // a square
  compare(result.gradient_norm, std::sqrt(squares), tolerance, "gradient norm");
  EXPECT_EQ(result.expert_loads, expected_.expert_loads);
  EXPECT_EQ(result.targets, problem_.batch.targets());
}

void Comparison::compare_observed(const Observed& observed, int rank, double tolerance) {
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
      expect_within(relative_error(entry->second, mine, largest(all.values)), tolerance,
                    fmt::format("{} of micro-batch {}", name, i));
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
