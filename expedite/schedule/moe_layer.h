// The tasks of one MoE layer, forward and backward, for every dispatcher and pipeline of chunks.
#pragma once

#include <functional>
#include <vector>

#include "expedite/schedule/step_writer.h"

namespace expedite::schedule {

/// Called where compute would wait for communication: adds tasks to run there.
struct MoeHooks {
  std::function<void()> out_under_way = [] {};   // the first way out is under way
  std::function<void()> back_under_way = [] {};  // the last way back is under way, shared experts are done
};

/// What the layer's builder can put under the exchanges of backward, and what waits for it.
struct MoeBackward {
  MoeHooks hooks = {};
  std::vector<TaskId> router_after = {};  // what the router's gradient waits for, besides the layer itself
  bool weight_grads = true;               // false: weight_grads() is called later
};

/// A chunk goes through pack, out, experts, back and unpack; in forward those are permute, dispatch, experts,
/// combine and unpermute, and in backward the mirrors of unpermute, combine, experts, dispatch and permute.
/// Where ranks of a node share rows, `out` and `back` have a second part that tells the node where rows lie.
class MoeLayer {
 public:
  MoeLayer(StepWriter& writer, const StepSpec& spec, int layer);

  /// From `mid` to the next layer's `hidden`. Returns the router's task.
  TaskId forward(const MoeHooks& hooks = {});
  /// The same once more, before backward, with the routing as it was and without keeping `hidden`.
  void recompute(const MoeHooks& hooks);
  /// From the gradient of the next layer's `hidden` to that of `mid`. Returns the last of the experts' weight
  /// gradients; -1 without.
  TaskId backward(const MoeBackward& context);
  /// What backward left out. Returns the last of the experts'.
  TaskId weight_grads();

 private:
  /// The operations and buffers of one direction.
  struct Flow {
    Pass pass;
    Op pack, out, back, unpack;
    Role send, relay, recv, output, share, back_send, relay_back, back_recv;

    [[nodiscard]] bool forward() const { return pass != Pass::input_grad; }
  };
  static const Flow kForward;
  static const Flow kRecompute;
  static const Flow kBackward;

  [[nodiscard]] int chunk(int index) const { return chunks_ > 1 ? index : -1; }
  [[nodiscard]] BufferKey key(Role role) const { return {role, layer_, -1}; }
  [[nodiscard]] BufferKey key(Role role, int index) const { return {role, layer_, chunk(index)}; }
  /// A buffer in expert order: of the chunk, or of the whole layer.
  [[nodiscard]] BufferKey expert_key(Role role, int index) const;
  [[nodiscard]] Work work(Op op, const Flow& flow, int index, std::vector<TaskId> after = {}) const;

  /// Work to run while the first chunk is on its way out, after a chunk's experts, and while the last is on
  /// its way back.
  struct Cover {
    std::function<void()> first;
    std::function<void(int index)> behind_experts;
    std::function<void()> last;
  };
  void run(const Flow& flow, const Cover& cover);
  void run_continuous(const Flow& flow, const Cover& cover);
  void run_pairwise(const Flow& flow, const Cover& cover);
  void run_one_by_one(const Flow& flow, const Cover& cover);

  void send_out(const Flow& flow, int index);  // pack and out
  void pack(const Flow& flow, int index);
  void out(const Flow& flow, int index);
  void tell_arrival(const Flow& flow, int index);
  TaskId send(const Work& work, Stream stream, GroupId group, const Held& held);
  void experts(const Flow& flow, int index);
  void back(const Flow& flow, int index);
  void back_through_node(const Flow& flow, int index);
  void unpack(const Flow& flow, int index);

  void hold_experts_forward(Held& held, int index);
  void hold_experts_backward(Held& held, int index);
  void recompute_experts(int index);
  void run_forward(const Flow& flow, const MoeHooks& hooks);
  void weight_grad(int first, int count);
  void weight_grad_behind(int index);
  void shared_experts(Pass pass, int first_half, int halves);

  StepWriter& writer_;
  const StepSpec& spec_;
  int layer_;
  int chunks_;
  Stream stream_;  // of what is sent
  TaskId metadata_ = -1;
  TaskId weight_grad_ = -1;
  bool weight_grads_now_ = true;
  // By chunk, of the direction being built; -1: no such task.
  std::vector<TaskId> packed_;
  std::vector<TaskId> arrived_;
  std::vector<TaskId> computed_;
  std::vector<TaskId> returned_;
};

}  // namespace expedite::schedule
