// A schedule is data: one rank's tasks, each saying what, for what, on which stream, and after which tasks.
// Builders make schedules, the verifier proves them sound, the executor runs them, the trace shows them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/tensor/memory_pool.h"

namespace expedite::schedule {

using TaskId = std::int32_t;    // index into Schedule::tasks
using BufferId = std::int32_t;  // index into Schedule::buffers
using GroupId = std::int32_t;   // index into Schedule::groups

/// An in-order queue. Nothing but a stream's order and Task::after orders tasks: CUDA's semantics.
enum class Stream : std::uint8_t {
  compute,   // the rank's cores
  prefetch,  // memory to cache
  intra,     // communication inside a node
  inter,     // communication that leaves the node
  reduce,    // gradient reduction, apart so that bulk never delays an all-to-all
  // Messages between pipeline stages, by neighbour and direction: none waits behind another that goes
  // elsewhere.
  send_next,
  receive_previous,
  send_previous,
  receive_next,
};
inline constexpr int kStreams = 9;
[[nodiscard]] std::string_view name_of(Stream stream);
/// Communication streams are all served by the one thread that makes MPI calls.
[[nodiscard]] constexpr bool is_communication(Stream stream) {
  return stream != Stream::compute && stream != Stream::prefetch;
}
/// The stream on which a message of `stream` arrives at its peer.
[[nodiscard]] constexpr Stream arrival_of(Stream stream) {
  return stream == Stream::send_next       ? Stream::receive_previous
         : stream == Stream::send_previous ? Stream::receive_next
                                           : stream;
}

/// What a task does. The comment names its passes beyond forward.
enum class Op : std::uint8_t {
  embedding,       // token rows; weight_grad
  attention,       // norm, QKV, attention, output projection, residual; input_grad, weight_grad
  dense_mlp,       // norm, gate/up, SwiGLU, down, residual; input_grad, weight_grad
  router,          // norm, logits, top-k, dispatch plan; input_grad (with weight_grad inside: it is tiny)
  metadata,        // all-gather of the routing: once per layer, for all chunks and exchanges
  shared_experts,  // the experts of every token; input_grad, weight_grad
  permute,         // token rows in the order they are sent; input_grad: sums what comes back
  dispatch,        // rows to the experts' ranks; input_grad. Inside a node: tells where they lie in memory
  experts,         // grouped matmuls; recompute, input_grad, weight_grad
  node_sum,        // sums of a node's outputs for tokens of other nodes; input_grad
  combine,         // rows back to the tokens' ranks; input_grad. Inside a node: as dispatch
  unpermute,     // sums of a token's outputs, and residual; input_grad: gradients in the order they are sent
  retire,        // tells the node's ranks that what they share has been read; input_grad
  boundary,      // activations from outside the step, gradients to it; input_grad
  loss,          // final norm, head and cross-entropy, with its gradients
  reduce_dense,  // gradient all-reduce over all ranks
  reduce_experts,  // gradient all-reduce over the replicas of an expert shard
  loads,           // all-gather of the micro-step's expert loads, for a loss over the whole batch
  gradient_norm,   // this rank's sums of squares
  statistics,      // all-gather of each rank's sums: losses, squares of gradients, expert loads
  optimizer,       // AdamW
  stage,         // all layers of a virtual stage as one task; input_grad (with weight_grad inside, or apart)
  paired_stage,  // the same beside the paired_stage next to it: a forward and a backward that overlap
  mtp_projection,  // multi-token prediction: norms of hidden and next embedding, projection; both gradients
  send,            // activations to the next virtual stage; input_grad: gradients to the one before
  receive,         // the other end of it
  gather_weights,  // of sharded optimizers: all-gather of updated weights
};
inline constexpr int kOps = static_cast<int>(Op::gather_weights) + 1;
[[nodiscard]] std::string_view name_of(Op op);

enum class Pass : std::uint8_t { forward, recompute, input_grad, weight_grad, update };
[[nodiscard]] std::string_view name_of(Pass pass);

enum class Collective : std::uint8_t { all_gather, all_to_all, all_reduce, send, receive, reduce_scatter };
[[nodiscard]] std::string_view name_of(Collective collective);

/// What makes a communication task match across ranks: members of a group issue the same collectives in the
/// same order on the same stream; a send to `peer` meets that rank's receive from here, in order.
struct Communication {
  Collective collective = Collective::all_to_all;
  GroupId group = 0;
  int peer = -1;  // world rank; send and receive only
};

/// What the number of a task's or a buffer's piece counts.
enum class Piece : std::uint8_t {
  chunk,          // chunks of the layer's tokens (EpPlan::chunking)
  half,           // of shared experts: 0 the tokens that are unpacked early, 1 the others
  virtual_stage,  // of the rank: all its layers as one task
  part,           // parts of the model: the one that a message is for
};
[[nodiscard]] std::string_view name_of(Piece piece);

struct Task {
  Op op = Op::embedding;
  Pass pass = Pass::forward;
  Stream stream = Stream::compute;
  int layer = -1;  // -1: no layer (embedding, loss, whole-model tasks)
  int micro_batch = -1;
  int chunk = -1;  // number of what `piece` says; -1: of the whole
  int chunks = 1;  // from `chunk` on
  Piece piece = Piece::chunk;
  std::vector<TaskId> after = {};
  std::optional<Communication> communication = std::nullopt;
  std::vector<BufferId> acquires = {};  // taken from the pool just before the task starts
  std::vector<BufferId> uses =
      {};  // must be held while it runs (what it acquires or releases need not be named again)
  std::vector<BufferId> releases = {};  // given back when it ends
};

/// "L3 mb0 dispatch forward"; a piece of whatever kind is "c1".
[[nodiscard]] std::string label(const Task& task);

/// Ranks that communicate together.
struct Group {
  std::string name;        // "world", "ep", "expert_dp": what a user knows it by
  std::vector<int> ranks;  // world ranks, ascending
};

/// A piece of memory with a life inside the step. `role` is the builder's; the executor only passes it on.
struct LogicalBuffer {
  std::uint8_t role = 0;
  MemoryCategory category = MemoryCategory::activations;
  int layer = -1;
  int micro_batch = -1;
  int chunk = -1;  // as Task's
  Piece piece = Piece::chunk;
  bool shared = false;              // in memory that all ranks of the node can read
  std::int64_t expected_bytes = 0;  // for prediction; the real size is bound when it is acquired
};

/// One rank's step. Within a stream, tasks run in the order they stand here.
struct Schedule {
  int rank = 0;
  std::vector<Task> tasks;
  std::vector<LogicalBuffer> buffers;
  std::vector<Group> groups;
};

}  // namespace expedite::schedule
