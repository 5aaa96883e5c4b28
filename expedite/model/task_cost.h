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

#include "expedite/cost/cluster.h"
#include "expedite/cost/simulator.h"
#include "expedite/model/expected_rows.h"
#include "expedite/model/parameters.h"
#include "expedite/model/step_case.h"

namespace expedite::model {

/// What a task of a rank takes, as cost::TaskCosts asks; of communication also what compute keeps meanwhile.
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
  [[nodiscard]] double scores(std::string_view kernel_name, int layer) const;
  [[nodiscard]] double attention_output() const;
  [[nodiscard]] double bias(bool there, double columns) const;
  [[nodiscard]] double norm_backward() const;
  [[nodiscard]] double heads_norms(std::string_view kernel_name) const;
  [[nodiscard]] double rotary() const;
  [[nodiscard]] double grouped_query_forward() const;
  [[nodiscard]] double grouped_query_input_grad() const;
  [[nodiscard]] double grouped_query_weight_grad() const;
  [[nodiscard]] double latent_rotary() const;
  [[nodiscard]] double latent_forward() const;
  [[nodiscard]] double latent_input_grad() const;
  [[nodiscard]] double latent_weight_grad() const;
  [[nodiscard]] double dense_mlp(const schedule::Task& task) const;
  [[nodiscard]] double router(const schedule::Task& task) const;
  [[nodiscard]] double shared_experts(const schedule::Task& task) const;
  [[nodiscard]] double permute(int rank, const schedule::Task& task) const;
  [[nodiscard]] double unpermute(int rank, const schedule::Task& task) const;
  [[nodiscard]] double experts(int rank, const schedule::Task& task) const;
  [[nodiscard]] double row_bias(double rows, double columns) const;
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
