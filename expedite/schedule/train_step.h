// The builder of a training (or evaluation) step with data and expert parallelism.
#pragma once

#include <cstdint>
#include <vector>

#include "expedite/schedule/schedule.h"

namespace expedite::schedule {

/// What a step's buffers hold; LogicalBuffer::role. Rows "in dispatch order" are sorted by expert, and so by
/// the rank that holds the expert; rows "in expert order" are an expert's rows from all ranks, padded to its
/// row groups. Without expert parallelism both orders are one, and the rows never leave expert order.
enum class Role : std::uint8_t {
  hidden,              // input of a layer (layer L: of the final norm)
  attention,           // what attention keeps for backward
  mid,                 // residual stream between attention and MLP
  mlp,                 // what a dense MLP keeps for backward
  router,              // normed input, scores, choices, weights, positions
  dispatch_send,       // token rows in dispatch order
  dispatch_recv,       // rows as they arrive: by source rank, then expert
  expert_input,        // rows in expert order
  experts,             // gate/up and activation, in expert order
  combine_send,        // expert outputs, in the order the rows arrived
  combine_recv,        // expert outputs, in dispatch order
  grad_hidden,         // gradient of `hidden`
  grad_mid,            // gradient of `mid`
  grad_attention,      // gradients the attention weight gradients need
  grad_mlp,            // likewise of a dense MLP
  grad_weights,        // gradient of the gate weights
  grad_combine_send,   // gradients of expert outputs, in dispatch order
  grad_combine_recv,   // the same, as they arrive at the experts' rank
  grad_expert_output,  // the same, in expert order
  grad_experts,        // gradient of gate/up
  grad_dispatch_send,  // gradients of rows, in the order the rows arrived
  grad_dispatch_recv,  // gradients of rows, in dispatch order
};
[[nodiscard]] std::string_view name_of(Role role);

/// A step's groups, by index into Schedule::groups.
inline constexpr GroupId kWorldGroup = 0;
inline constexpr GroupId kExpertParallelGroup = 1;
inline constexpr GroupId kExpertDataParallelGroup = 2;

struct TrainStepSpec {
  int rank = 0;
  std::vector<Group> groups;                      // world, ep, expert_dp
  Stream expert_parallel_stream = Stream::intra;  // inter when the ep group spans nodes
  std::vector<bool> sparse;                       // per layer: experts, or a dense MLP
  int micro_batches = 1;
  bool training = true;         // false: forward and loss only
  bool batch_aux_loss = false;  // expert loads of a micro-step are summed before its backward
  bool update = true;           // false: stop at reduced gradients

  // For expected bytes: tokens per micro-batch on this rank, and sizes as in a model's configuration.
  std::int64_t tokens = 0;
  std::int64_t hidden_size = 0;
  std::int64_t qkv_size = 0;
  std::int64_t query_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t moe_intermediate_size = 0;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t element_bytes = 2;
};

/// One rank's step. Per micro-batch: forward through all layers, then backward, where weight gradients are
/// filler under the all-to-alls: those of the experts under dispatch's, those of the attention above under
/// combine's. In the last micro-batch a layer's gradients are reduced as soon as they are complete, under the
/// backward of those below. Then the norm of all gradients, and the optimizer.
[[nodiscard]] Schedule build_train_step(const TrainStepSpec& spec);

}  // namespace expedite::schedule
