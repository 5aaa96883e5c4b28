// What the buffers of a step hold.
#pragma once

#include <cstdint>
#include <string_view>

#include "expedite/tensor/memory_pool.h"

namespace expedite::schedule {

/// LogicalBuffer::role. Rows "in expert order" are sorted by expert, each expert's padded
/// (kernels::RowBlocks). Rows "to other ranks" are sorted by the rank they go to; how many a token has there
/// is the dispatcher's choice. A node's ranks read "shared" ones straight from each other's memory.
enum class Role : std::uint8_t {
  hidden,               // input of a layer (layer L: of the final norm)
  attention,            // what attention keeps for backward
  mid,                  // residual stream between attention and MLP
  mlp,                  // what a dense MLP keeps for backward
  router,               // normed input, scores, choices, weights
  shared_experts,       // what the shared experts keep for backward
  shared_output,        // their output
  dispatch_send,        // token rows and their gate weights, to other ranks
  dispatch_recv,        // the same, as they arrive; shared inside a node
  expert_input,         // token rows in expert order, and the gate weight of each
  gate_up,              // gate/up, in expert order
  activated,            // weighted activations, in expert order
  expert_output,        // weighted outputs, in expert order
  combine_share,        // sums of a token's outputs for its rank's node; shared
  combine_send,         // sums of a token's outputs, back to its rank
  combine_recv,         // the same, as they arrive
  grad_hidden,          // gradient of `hidden`
  grad_mid,             // gradient of `mid`
  grad_attention,       // gradients the attention weight gradients need
  grad_mlp,             // likewise of a dense MLP
  grad_shared,          // likewise of the shared experts, and the gradient of their input
  grad_weights,         // gradient of the gate weights
  grad_combine_send,    // gradients of tokens' outputs, to other ranks
  grad_combine_recv,    // the same, as they arrive; shared inside a node
  grad_output,          // the same, in expert order
  grad_gate_up,         // gradient of gate/up, where it does not take gate/up's place
  grad_expert_input,    // gradients of rows and of their gate weights, in expert order
  grad_dispatch_share,  // sums of them for a token's rank's node; shared
  grad_dispatch_send,   // sums of them, back to the token's rank
  grad_dispatch_recv,   // the same, as they arrive
  relay_out,            // of other ranks' rows, on the way to ranks of this node
  relay_back,           // sums of a node's outputs for a rank of another node, on the way there
  grad_relay_out,       // likewise of the gradients of tokens' outputs
  grad_relay_back,      // likewise of the gradients of rows
  mtp,                  // what the projection of multi-token prediction keeps, and its output
  stage,                // what a virtual stage keeps for its input gradients, in a coarse pipeline
  stage_inputs,         // what it keeps for its weight gradients
};
[[nodiscard]] std::string_view name_of(Role role);
[[nodiscard]] MemoryCategory category_of(Role role);
/// Its size follows from how many rows are routed, not from the tokens of a micro-batch.
[[nodiscard]] bool holds_rows(Role role);

}  // namespace expedite::schedule
