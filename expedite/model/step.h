// Runs the tasks of a training step on a model: the meaning of schedule::train_step's operations.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "expedite/architecture/buffer_bytes.h"
#include "expedite/comm/node_memory.h"
#include "expedite/comm/process_grid.h"
#include "expedite/kernels/optimizer.h"
#include "expedite/model/balance.h"
#include "expedite/model/micro_batch.h"
#include "expedite/model/parameters.h"
#include "expedite/model/step_spec.h"
#include "expedite/moe/dispatch_plan.h"
#include "expedite/runtime/task_runner.h"
#include "expedite/schedule/role.h"
#include "expedite/schedule/train_step.h"

namespace expedite::model {

struct StepOptions {
  BalanceOptions balance;
  double loss_scale =
      1.0;  // multiplies the gradient of the language-model loss; the auxiliary losses have their own
  double clip_grad = 0.0;         // 0: no clipping
  double bias_update_rate = 0.0;  // of the experts' selection bias, per step
  kernels::AdamwOptions adamw;
  std::int64_t step = 0;  // from 1, for messages; 0: not one of a training run
  bool stop = false;      // this rank was asked to stop; any rank's wish reaches all in StepResult
};

/// Over all ranks, and the same on all.
struct StepResult {
  double loss = 0.0;      // mean over targets, without auxiliary losses
  double aux_loss = 0.0;  // before its coefficient
  double z_loss = 0.0;    // before its coefficient
  double gradient_norm = 0.0;
  std::int64_t targets = 0;
  std::vector<std::vector<std::int64_t>> expert_loads;  // per sparse layer, [E] tokens
  bool stop = false;
};

/// Sees what a step computes on this rank, on the compute thread: "hidden_states.3", "router_logits.3",
/// "final_hidden_state", "logits". The view is valid during the call.
using Observer = std::function<void(const std::string& name, int micro_batch, ConstTensorView value)>;

class StepRunner final : public runtime::TaskRunner {
 public:
  /// Collective over the grid's world: makes the communicators of the step's streams, and the memory that a
  /// node's ranks share if the plan's dispatcher wants it.
  StepRunner(Parameters& parameters, const comm::ProcessGrid& grid, MemoryPool& pool,
             const schedule::EpPlan& plan);

  /// For the executor: where shared buffers lie; null without any.
  [[nodiscard]] MemoryPool* shared_pool() { return shared_pool_.get(); }

  /// What build_train_step needs to know for rank `rank`'s part of a step.
  [[nodiscard]] schedule::StepSpec spec(int rank, const StepShape& shape) const;

  /// Input and output of a layer that runs alone (build_moe_layer_step); kept until the step has run.
  struct Boundary {
    ConstTensorView input;        // [T, H]
    TensorView output;            // [T, H]
    ConstTensorView grad_output;  // [T, H]
    TensorView grad_input;        // [T, H]
  };
  void set_boundary(const Boundary& boundary) { boundary_ = boundary; }

  /// Sets the input of the next step, whose schedule build_train_step(spec(...)) made; all are kept by
  /// reference until the step has run.
  struct Input {
    std::span<const MicroBatch> micro_batches;     // this rank's
    std::int64_t total_tokens = 0;                 // of all ranks and micro-batches
    std::int64_t total_targets = 0;                // likewise
    std::vector<std::int64_t> micro_batch_tokens;  // of each micro-batch on all ranks
  };
  void begin(const schedule::StepSpec& spec, const schedule::Schedule& schedule, Input input,
             StepOptions options);
  /// After the schedule has run.
  [[nodiscard]] StepResult result() const;

  void set_observer(Observer observer) { observer_ = std::move(observer); }

  [[nodiscard]] std::int64_t bytes(const schedule::LogicalBuffer& buffer) override;
  void run(const schedule::Task& task, runtime::BufferTable& buffers) override;
  [[nodiscard]] std::unique_ptr<runtime::PendingCommunication> start(const schedule::Task& task,
                                                                     runtime::BufferTable& buffers) override;

 private:
  class Held;  // the buffers of a task, by role
  using Pending = std::unique_ptr<runtime::PendingCommunication>;

  /// A neighbour's block for each neighbour, by what lies there.
  enum Window : std::uint8_t { kDispatched, kCombined, kGradCombined, kGradDispatched, kWindows };
  /// The routing of one layer and micro-batch.
  struct LayerRouting {
    moe::DispatchPlan plan;
    std::vector<std::array<std::vector<std::int64_t>, kWindows>> offsets;  // [chunk][window][neighbour]
  };

  [[nodiscard]] LayerRouting& routing(int micro_batch, int layer);
  [[nodiscard]] const moe::ChunkPlan& chunk_plan(const schedule::Task& task);
  [[nodiscard]] const moe::ChunkPlan& chunk_plan(const schedule::LogicalBuffer& buffer);
  /// Where the rows of a task's chunks lie in the buffers that experts see.
  [[nodiscard]] kernels::RowBlocks expert_blocks(const schedule::Task& task);
  /// The rows that each neighbour has in a window, by its local index, and with `gated` what goes beside
  /// them. This rank's are in `own`; null: they are not wanted.
  struct NeighbourRows {
    std::vector<ConstTensorView> rows;
    std::vector<ConstTensorView> gates;
  };
  [[nodiscard]] NeighbourRows neighbour_rows(const schedule::Task& task, Window window,
                                             const std::vector<std::int64_t>& counts, bool gated,
                                             Buffer* own);
  /// The matrices that a plan's references number.
  using Sources = std::vector<ConstTensorView>;
  struct ReturnedRows {
    Sources rows;
    Sources gates;
  };
  [[nodiscard]] ReturnedRows returned_rows(const schedule::Task& task, Held& held);
  /// Adds up what this rank's experts made, for whoever adds it to the rest.
  void sum_for_others(const schedule::Task& task, Held& held);
  /// Of a buffer of routed rows.
  [[nodiscard]] std::int64_t rows_of(const schedule::LogicalBuffer& buffer);
  [[nodiscard]] bool expert_parallel() const { return layout_.ranks() > 1; }
  [[nodiscard]] const MicroBatch& batch(int micro_batch) const;
  [[nodiscard]] TensorView rows(Buffer& buffer, std::int64_t count) const;            // [count, H]
  [[nodiscard]] TensorView gate_up_rows(Buffer& buffer, std::int64_t count) const;    // [count, 2F]
  [[nodiscard]] TensorView activated_rows(Buffer& buffer, std::int64_t count) const;  // [count, F]
  [[nodiscard]] TensorView grad_gate_up_rows(Held& held, std::int64_t count) const;   // [count, 2F]
  void observe(const std::string& name, int micro_batch, ConstTensorView value) const;

  // One per operation, on the compute thread.
  void run_embedding(const schedule::Task& task, Held& held);
  void run_attention(const schedule::Task& task, Held& held);
  void run_dense_mlp(const schedule::Task& task, Held& held);
  void run_router_forward(const schedule::Task& task, Held& held);
  void run_router_backward(const schedule::Task& task, Held& held);
  void run_permute_forward(const schedule::Task& task, Held& held);
  void run_permute_backward(const schedule::Task& task, Held& held);
  void run_experts(const schedule::Task& task, Held& held);
  void run_experts_forward(const schedule::Task& task, Held& held);
  void run_experts_recompute(const schedule::Task& task, Held& held);
  void run_experts_input_grad(const schedule::Task& task, Held& held);
  void run_experts_weight_grad(const schedule::Task& task, Held& held);
  void run_shared_experts(const schedule::Task& task, Held& held);
  void run_node_sum(const schedule::Task& task, Held& held);
  void run_unpermute_forward(const schedule::Task& task, Held& held);
  void run_unpermute_backward(const schedule::Task& task, Held& held);
  void run_boundary(const schedule::Task& task, Held& held);
  void run_loss(const schedule::Task& task, Held& held);
  void run_gradient_norm();
  void run_optimizer(const schedule::Task& task);
  void update_selection_bias(int layer);

  // On the communication thread.
  [[nodiscard]] Pending start_metadata(const schedule::Task& task);
  [[nodiscard]] Pending start_exchange(const schedule::Task& task, Held& held);
  [[nodiscard]] Pending start_announcement(const schedule::Task& task, Held& held);
  [[nodiscard]] Pending start_retirement();
  [[nodiscard]] Pending start_reduction(const schedule::Task& task);
  [[nodiscard]] Pending start_loads(const schedule::Task& task);
  [[nodiscard]] Pending start_statistics();

  [[nodiscard]] std::vector<double> batch_shares(int micro_batch) const;
  [[nodiscard]] double balance_scale() const;  // one over (tokens of the step times sparse layers)

  Parameters& parameters_;
  const ModelConfig& config_;
  DType dtype_;
  architecture::BufferBytes buffer_bytes_;
  const comm::ProcessGrid& grid_;
  MemoryPool& pool_;
  // One communicator per stream and group: operations of different streams may start in any order.
  comm::Communicator expert_parallel_;
  comm::Communicator node_;  // the ranks of the expert-parallel group on this node
  comm::Communicator world_;
  comm::Communicator reduce_world_;
  comm::Communicator reduce_experts_;
  std::vector<int> sparse_index_;  // layer -> its place among the sparse layers, or -1
  int sparse_layers_ = 0;

  schedule::EpPlan ep_plan_;
  moe::ExpertLayout layout_;
  std::vector<int> node_of_;  // of each rank of the expert-parallel group
  std::unique_ptr<comm::NodeMemory> node_memory_;
  std::unique_ptr<MemoryPool> shared_pool_;

  const schedule::StepSpec* spec_ = nullptr;
  const schedule::Schedule* schedule_ = nullptr;
  Input input_;
  StepOptions options_;
  Observer observer_;
  Boundary boundary_;
  std::vector<LayerRouting> routing_;                 // [micro-batch * layers + layer]
  std::vector<std::vector<std::int64_t>> loads_;      // per micro-batch: [E] over all layers, on this rank
  std::vector<std::vector<std::int64_t>> all_loads_;  // per micro-batch: [ranks * E]
  std::vector<double> sums_;                          // this rank's part of the result; see step_sums.h
  std::vector<std::int64_t> retired_;                 // what ranks of the node say of it: nothing
  std::vector<std::int64_t> all_sums_;                // every rank's, as bits
};

}  // namespace expedite::model
