// What the tasks of a training step cost on a cluster that `expedite probe` has measured: the counterpart of
// StepRunner, which runs them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "expedite/comm/grid_layout.h"
#include "expedite/cost/cluster.h"
#include "expedite/cost/simulator.h"
#include "expedite/model/balance.h"
#include "expedite/model/config.h"
#include "expedite/model/parameters.h"
#include "expedite/model/step_spec.h"

namespace expedite::model {

/// A training step as a job would run it.
struct StepCase {
  ModelConfig config;
  DType dtype = DType::bf16;
  schedule::EpPlan plan;
  comm::Placement placement;
  StepShape shape;
  std::int64_t sequence_length = 0;  // of which a micro-batch holds several
  BalanceOptions balance;
  // [sparse layers][E] how often tokens chose each expert; empty: evenly.
  std::vector<std::vector<double>> expert_loads;

  [[nodiscard]] int ranks() const { return placement.layout.world_size(); }
};

/// Of every rank.
[[nodiscard]] std::vector<schedule::Schedule> build_schedules(const StepCase& step);

/// The rows that an expert-parallel group's ranks send, receive and compute, where tokens choose experts as
/// the step's loads say, and ranks have as many tokens each: expected values.
class ExpectedRows {
 public:
  ExpectedRows(const StepCase& step, std::int64_t layer, int rank);

  /// Rows of an expert of this rank, for `tokens` tokens of each rank, padded as RowBlocks pads them.
  [[nodiscard]] std::vector<double> of_experts(double tokens) const;
  [[nodiscard]] double sent(double tokens) const { return tokens * sent_; }
  [[nodiscard]] double arrived(double tokens) const { return tokens * arrived_; }
  /// Own rows that neighbours read, rows and sums that this rank reads from neighbours, and rows that it sums
  /// for them: of the hierarchical dispatchers.
  [[nodiscard]] double shared(double tokens) const { return tokens * shared_; }
  [[nodiscard]] double summed(double tokens) const { return tokens * summed_; }
  /// Rows that are summed for one row that goes back, and for one token.
  [[nodiscard]] double summands_back() const { return summands_back_; }
  [[nodiscard]] double summands_token() const { return summands_token_; }

 private:
  std::vector<double> copies_;  // of a token, by local expert
  int ranks_ = 1;
  double sent_ = 0.0;
  double arrived_ = 0.0;
  double shared_ = 0.0;
  double summed_ = 0.0;
  double summands_back_ = 1.0;
  double summands_token_ = 1.0;
};

class TaskCosts {
 public:
  /// Throws Error when the cluster lacks what a step needs, naming it.
  TaskCosts(StepCase step, const cost::Cluster& cluster);

  [[nodiscard]] cost::TaskCost operator()(const schedule::Schedule& schedule,
                                          const schedule::Task& task) const;

 private:
  [[nodiscard]] double kernel(std::string_view name, DType dtype, std::initializer_list<double> sizes) const;
  [[nodiscard]] double kernel(std::string_view name, std::initializer_list<double> sizes) const {
    return kernel(name, step_.dtype, sizes);
  }
  [[nodiscard]] double compute_seconds(int rank, const schedule::Task& task) const;
  [[nodiscard]] double attention(const schedule::Task& task) const;
  [[nodiscard]] double attention_forward() const;
  [[nodiscard]] double attention_input_grad() const;
  [[nodiscard]] double heads_norms(std::string_view kernel_name) const;
  [[nodiscard]] double rotary() const;
  [[nodiscard]] double dense_mlp(const schedule::Task& task) const;
  [[nodiscard]] double router(const schedule::Task& task) const;
  [[nodiscard]] double shared_experts(const schedule::Task& task) const;
  [[nodiscard]] double permute(int rank, const schedule::Task& task) const;
  [[nodiscard]] double unpermute(int rank, const schedule::Task& task) const;
  [[nodiscard]] double experts(int rank, const schedule::Task& task) const;
  [[nodiscard]] double sum_for_others(const ExpectedRows& rows, double tokens, bool forward) const;
  [[nodiscard]] double loss() const;
  [[nodiscard]] double optimizer(int rank, int layer) const;
  [[nodiscard]] double gradient_norm(int rank) const;
  [[nodiscard]] cost::TaskCost communication(const schedule::Schedule& schedule,
                                             const schedule::Task& task) const;
  [[nodiscard]] std::int64_t bucket_elements(int rank, int layer, bool expert) const;
  [[nodiscard]] double chunk_tokens(const schedule::Task& task) const;
  [[nodiscard]] const ExpectedRows& rows(int rank, int layer) const;

  StepCase step_;
  schedule::StepSpec spec_;  // of rank 0
  const cost::Cluster& cluster_;
  std::map<std::pair<std::string, DType>, const cost::KernelTimes*, std::less<>> kernels_;
  double tokens_ = 0.0;     // of a micro-batch
  double sequences_ = 0.0;  // in it
  std::vector<std::unique_ptr<MemoryPool>> no_memory_;
  std::vector<std::unique_ptr<Parameters>> parameters_;  // shapes, by place in the expert-parallel group
  std::vector<std::vector<ExpectedRows>> rows_;          // by rank and layer; dense layers have none
};

}  // namespace expedite::model
