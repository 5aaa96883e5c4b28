#include "expedite/schedule/train_step.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace expedite::schedule {
namespace {

using Key = std::pair<Role, int>;  // role and layer, within a micro-batch

/// What a task holds; a buffer named in one list need not be named in another.
struct Buffers {
  std::initializer_list<Key> acquires = {};
  std::initializer_list<Key> uses = {};
  std::initializer_list<Key> releases = {};
};

class Builder {
 public:
  explicit Builder(const TrainStepSpec& spec) : spec_(spec), layers_(static_cast<int>(spec.sparse.size())) {
    schedule_.rank = spec.rank;
    schedule_.groups = spec.groups;
  }

  Schedule build() {
    for (micro_batch_ = 0; micro_batch_ < spec_.micro_batches; ++micro_batch_) {
      buffers_.clear();
      forward();
      if (spec_.training) {
        backward();
      }
    }
    micro_batch_ = -1;
    finish();
    return std::move(schedule_);
  }

 private:
  [[nodiscard]] bool expert_parallel() const { return group_size(kExpertParallelGroup) > 1; }
  [[nodiscard]] bool last_micro_batch() const { return micro_batch_ == spec_.micro_batches - 1; }
  [[nodiscard]] std::size_t group_size(GroupId group) const {
    return spec_.groups[static_cast<std::size_t>(group)].ranks.size();
  }

  // ---- Buffers

  [[nodiscard]] std::int64_t expected_bytes(Role role) const {
    const std::int64_t t = spec_.tokens;
    const std::int64_t element = spec_.element_bytes;
    const std::int64_t k = spec_.experts_per_token;
    const std::int64_t row = spec_.hidden_size * element;
    switch (role) {
      case Role::hidden:
      case Role::mid:
      case Role::grad_hidden:
      case Role::grad_mid:
        return t * row;
      case Role::attention:
        return t * (row + (spec_.qkv_size + spec_.query_size) * element + 8);
      case Role::grad_attention:
        return t * spec_.qkv_size * element;
      case Role::mlp:
        return t * (row + 3 * spec_.intermediate_size * element + 4);
      case Role::grad_mlp:
        return t * 2 * spec_.intermediate_size * element;
      case Role::router:
        return t * (row + 4 + 8 * spec_.experts + 12 * k);
      case Role::grad_weights:
        return t * k * 4;
      case Role::experts:
        return t * k * 3 * spec_.moe_intermediate_size * element;
      case Role::grad_experts:
        return t * k * 2 * spec_.moe_intermediate_size * element;
      default:
        return t * k * row;  // rows of the hidden size, one per token and choice, in whatever order
    }
  }

  [[nodiscard]] static MemoryCategory category(Role role) {
    switch (role) {
      case Role::dispatch_send:
      case Role::dispatch_recv:
      case Role::combine_send:
      case Role::grad_combine_send:
      case Role::grad_combine_recv:
      case Role::grad_dispatch_send:
      case Role::grad_dispatch_recv:
        return MemoryCategory::communication;
      case Role::expert_input:
      case Role::experts:
      case Role::combine_recv:
      case Role::grad_expert_output:
      case Role::grad_experts:
        return MemoryCategory::expert_activations;
      default:
        return MemoryCategory::activations;
    }
  }

  BufferId buffer(Role role, int layer) {
    const auto [entry, added] =
        buffers_.try_emplace(Key{role, layer}, static_cast<BufferId>(schedule_.buffers.size()));
    if (added) {
      schedule_.buffers.push_back({.role = static_cast<std::uint8_t>(role),
                                   .category = category(role),
                                   .layer = layer,
                                   .micro_batch = micro_batch_,
                                   .expected_bytes = expected_bytes(role)});
    }
    return entry->second;
  }

  std::vector<BufferId> ids(std::initializer_list<Key> keys) {
    std::vector<BufferId> result;
    result.reserve(keys.size());
    for (const auto& [role, layer] : keys) {
      result.push_back(buffer(role, layer));
    }
    return result;
  }

  // ---- Tasks

  TaskId add(Op op, Pass pass, int layer, std::vector<TaskId> after, const Buffers& held) {
    Task task;
    task.op = op;
    task.pass = pass;
    task.layer = layer;
    task.micro_batch = micro_batch_;
    task.after = std::move(after);
    task.acquires = ids(held.acquires);
    task.uses = ids(held.uses);
    task.releases = ids(held.releases);
    schedule_.tasks.push_back(std::move(task));
    return static_cast<TaskId>(schedule_.tasks.size()) - 1;
  }

  TaskId communicate(Op op, Pass pass, int layer, std::vector<TaskId> after, Stream stream,
                     Collective collective, GroupId group, const Buffers& held = {}) {
    const TaskId id = add(op, pass, layer, std::move(after), held);
    Task& task = schedule_.tasks[static_cast<std::size_t>(id)];
    task.stream = stream;
    task.communication = Communication{.collective = collective, .group = group};
    return id;
  }

  TaskId all_to_all(Op op, Pass pass, int layer, TaskId after, const Buffers& held) {
    return communicate(op, pass, layer, {after}, spec_.expert_parallel_stream, Collective::all_to_all,
                       kExpertParallelGroup, held);
  }

  // ---- Forward

  void forward() {
    add(Op::embedding, Pass::forward, -1, {}, {.acquires = {{Role::hidden, 0}}});
    TaskId last_router = -1;
    for (int layer = 0; layer < layers_; ++layer) {
      attention_forward(layer);
      if (spec_.sparse[static_cast<std::size_t>(layer)]) {
        last_router = moe_forward(layer);
      } else {
        dense_forward(layer);
      }
    }
    loads_ready_.clear();
    if (spec_.batch_aux_loss && last_router >= 0 && group_size(kWorldGroup) > 1) {
      loads_ready_ = {communicate(Op::loads, Pass::forward, -1, {last_router}, spec_.expert_parallel_stream,
                                  Collective::all_gather, kWorldGroup)};
    }
    if (spec_.training) {
      loss_ = add(Op::loss, Pass::forward, -1, {},
                  {.acquires = {{Role::grad_hidden, layers_}}, .releases = {{Role::hidden, layers_}}});
      reduce_dense(layers_, loss_);
    } else {
      loss_ = add(Op::loss, Pass::forward, -1, {}, {.releases = {{Role::hidden, layers_}}});
    }
  }

  void attention_forward(int layer) {
    if (spec_.training) {
      add(Op::attention, Pass::forward, layer, {},
          {.acquires = {{Role::attention, layer}, {Role::mid, layer}}, .uses = {{Role::hidden, layer}}});
    } else {
      add(Op::attention, Pass::forward, layer, {},
          {.acquires = {{Role::attention, layer}, {Role::mid, layer}},
           .releases = {{Role::hidden, layer}, {Role::attention, layer}}});
    }
  }

  void dense_forward(int layer) {
    if (spec_.training) {
      add(Op::dense_mlp, Pass::forward, layer, {},
          {.acquires = {{Role::mlp, layer}, {Role::hidden, layer + 1}}, .uses = {{Role::mid, layer}}});
    } else {
      add(Op::dense_mlp, Pass::forward, layer, {},
          {.acquires = {{Role::mlp, layer}, {Role::hidden, layer + 1}},
           .releases = {{Role::mid, layer}, {Role::mlp, layer}}});
    }
  }

  TaskId moe_forward(int layer) {
    const TaskId router = add(Op::router, Pass::forward, layer, {},
                              {.acquires = {{Role::router, layer}}, .uses = {{Role::mid, layer}}});
    std::vector<TaskId> outputs_ready;
    if (expert_parallel()) {
      outputs_ready = {exchanged_experts_forward(layer, router)};
    } else {
      add(Op::permute, Pass::forward, layer, {},
          {.acquires = {{Role::expert_input, layer}}, .uses = {{Role::router, layer}}});
      experts_forward(layer, {}, {{Role::experts, layer}, {Role::combine_recv, layer}}, {});
    }
    if (spec_.training) {
      add(Op::unpermute, Pass::forward, layer, outputs_ready,
          {.acquires = {{Role::hidden, layer + 1}},
           .uses = {{Role::router, layer}, {Role::mid, layer}, {Role::combine_recv, layer}}});
    } else {
      add(Op::unpermute, Pass::forward, layer, outputs_ready,
          {.acquires = {{Role::hidden, layer + 1}},
           .releases = {{Role::router, layer}, {Role::mid, layer}, {Role::combine_recv, layer}}});
    }
    return router;
  }

  TaskId exchanged_experts_forward(int layer, TaskId router) {
    communicate(Op::metadata, Pass::forward, layer, {router}, spec_.expert_parallel_stream,
                Collective::all_gather, kExpertParallelGroup);
    const TaskId permute = add(Op::permute, Pass::forward, layer, {},
                               {.acquires = {{Role::dispatch_send, layer}}, .uses = {{Role::router, layer}}});
    const TaskId dispatch =
        all_to_all(Op::dispatch, Pass::forward, layer, permute,
                   {.acquires = {{Role::dispatch_recv, layer}}, .releases = {{Role::dispatch_send, layer}}});
    const TaskId experts = experts_forward(
        layer, {dispatch}, {{Role::expert_input, layer}, {Role::experts, layer}, {Role::combine_send, layer}},
        {{Role::dispatch_recv, layer}});
    return all_to_all(Op::combine, Pass::forward, layer, experts,
                      {.acquires = {{Role::combine_recv, layer}}, .releases = {{Role::combine_send, layer}}});
  }

  // In evaluation the experts drop what only backward would read.
  TaskId experts_forward(int layer, std::vector<TaskId> after, std::initializer_list<Key> acquires,
                         std::initializer_list<Key> releases) {
    const TaskId id =
        add(Op::experts, Pass::forward, layer, std::move(after),
            {.acquires = acquires, .uses = {{Role::expert_input, layer}}, .releases = releases});
    if (!spec_.training) {
      Task& task = schedule_.tasks[static_cast<std::size_t>(id)];
      task.releases.push_back(buffer(Role::expert_input, layer));
      task.releases.push_back(buffer(Role::experts, layer));
    }
    return id;
  }

  // ---- Backward

  void backward() {
    for (int layer = layers_ - 1; layer >= 0; --layer) {
      if (spec_.sparse[static_cast<std::size_t>(layer)]) {
        moe_backward(layer);
      } else {
        dense_backward(layer);
      }
      add(Op::attention, Pass::input_grad, layer, {},
          {.acquires = {{Role::grad_hidden, layer}, {Role::grad_attention, layer}},
           .uses = {{Role::attention, layer}, {Role::grad_mid, layer}},
           .releases = {{Role::hidden, layer}}});
      filler_ = layer;
    }
    run_filler();
    const TaskId embedding =
        add(Op::embedding, Pass::weight_grad, -1, {}, {.releases = {{Role::grad_hidden, 0}}});
    reduce_dense(-1, embedding);
  }

  /// The attention weight gradients of the layer above, kept back until an all-to-all is under way.
  void run_filler() {
    const int layer = std::exchange(filler_, -1);
    if (layer < 0) {
      return;
    }
    const TaskId done =
        add(Op::attention, Pass::weight_grad, layer, {},
            {.releases = {{Role::attention, layer}, {Role::grad_attention, layer}, {Role::grad_mid, layer}}});
    reduce_dense(layer, done);
  }

  void dense_backward(int layer) {
    add(Op::dense_mlp, Pass::input_grad, layer, {},
        {.acquires = {{Role::grad_mid, layer}, {Role::grad_mlp, layer}},
         .uses = {{Role::mlp, layer}, {Role::grad_hidden, layer + 1}},
         .releases = {{Role::mid, layer}}});
    add(Op::dense_mlp, Pass::weight_grad, layer, {},
        {.releases = {{Role::mlp, layer}, {Role::grad_mlp, layer}, {Role::grad_hidden, layer + 1}}});
    run_filler();
  }

  void moe_backward(int layer) {
    const Role outgoing = expert_parallel() ? Role::grad_combine_send : Role::grad_expert_output;
    const TaskId unpermute = add(Op::unpermute, Pass::input_grad, layer, {},
                                 {.acquires = {{Role::grad_weights, layer}, {outgoing, layer}},
                                  .uses = {{Role::router, layer}, {Role::grad_hidden, layer + 1}},
                                  .releases = {{Role::combine_recv, layer}}});
    std::vector<TaskId> rows_ready;
    if (expert_parallel()) {
      const TaskId combine = all_to_all(
          Op::combine, Pass::input_grad, layer, unpermute,
          {.acquires = {{Role::grad_combine_recv, layer}}, .releases = {{Role::grad_combine_send, layer}}});
      run_filler();
      const TaskId experts = add(Op::experts, Pass::input_grad, layer, {combine},
                                 {.acquires = {{Role::grad_expert_output, layer},
                                               {Role::grad_experts, layer},
                                               {Role::grad_dispatch_send, layer}},
                                  .uses = {{Role::experts, layer}},
                                  .releases = {{Role::grad_combine_recv, layer}}});
      rows_ready = {all_to_all(Op::dispatch, Pass::input_grad, layer, experts,
                               {.acquires = {{Role::grad_dispatch_recv, layer}},
                                .releases = {{Role::grad_dispatch_send, layer}}})};
    } else {
      run_filler();
      add(Op::experts, Pass::input_grad, layer, {},
          {.acquires = {{Role::grad_experts, layer}, {Role::grad_dispatch_recv, layer}},
           .uses = {{Role::experts, layer}, {Role::grad_expert_output, layer}}});
    }
    const TaskId weights = add(Op::experts, Pass::weight_grad, layer, {},
                               {.releases = {{Role::expert_input, layer},
                                             {Role::experts, layer},
                                             {Role::grad_expert_output, layer},
                                             {Role::grad_experts, layer}}});
    if (last_micro_batch() && group_size(kExpertDataParallelGroup) > 1) {
      reduced_.push_back(communicate(Op::reduce_experts, Pass::update, layer, {weights}, Stream::reduce,
                                     Collective::all_reduce, kExpertDataParallelGroup));
    }
    add(Op::permute, Pass::input_grad, layer, rows_ready,
        {.acquires = {{Role::grad_mid, layer}},
         .uses = {{Role::router, layer}},
         .releases = {{Role::grad_dispatch_recv, layer}}});
    add(Op::router, Pass::input_grad, layer, loads_ready_,
        {.uses = {{Role::grad_mid, layer}},
         .releases = {{Role::router, layer},
                      {Role::grad_weights, layer},
                      {Role::mid, layer},
                      {Role::grad_hidden, layer + 1}}});
  }

  // ---- Update

  /// Gradients of a layer's dense parameters; of the embedding (layer -1); of the final norm and head (layer
  /// L).
  void reduce_dense(int layer, TaskId after) {
    if (last_micro_batch() && group_size(kWorldGroup) > 1) {
      reduced_.push_back(communicate(Op::reduce_dense, Pass::update, layer, {after}, Stream::reduce,
                                     Collective::all_reduce, kWorldGroup));
    }
  }

  void finish() {
    const bool update = spec_.training && spec_.update;
    std::vector<TaskId> sums_ready = {loss_};
    if (spec_.training) {
      sums_ready = {add(Op::gradient_norm, Pass::update, -1, reduced_, {})};
    }
    std::vector<TaskId> statistics_ready;
    if (group_size(kWorldGroup) > 1) {
      statistics_ready = {communicate(Op::statistics, Pass::update, -1, sums_ready,
                                      spec_.expert_parallel_stream, Collective::all_gather, kWorldGroup)};
    }
    for (int layer = -1; update && layer <= layers_; ++layer) {
      add(Op::optimizer, Pass::update, layer, statistics_ready, {});
    }
  }

  const TrainStepSpec& spec_;
  int layers_;
  int micro_batch_ = -1;
  int filler_ = -1;
  TaskId loss_ = -1;
  std::vector<TaskId> loads_ready_;
  std::vector<TaskId> reduced_;
  std::map<Key, BufferId> buffers_;
  Schedule schedule_;
};

}  // namespace

std::string_view name_of(Role role) {
  switch (role) {
    case Role::hidden:
      return "hidden";
    case Role::attention:
      return "attention";
    case Role::mid:
      return "mid";
    case Role::mlp:
      return "mlp";
    case Role::router:
      return "router";
    case Role::dispatch_send:
      return "dispatch_send";
    case Role::dispatch_recv:
      return "dispatch_recv";
    case Role::expert_input:
      return "expert_input";
    case Role::experts:
      return "experts";
    case Role::combine_send:
      return "combine_send";
    case Role::combine_recv:
      return "combine_recv";
    case Role::grad_hidden:
      return "grad_hidden";
    case Role::grad_mid:
      return "grad_mid";
    case Role::grad_attention:
      return "grad_attention";
    case Role::grad_mlp:
      return "grad_mlp";
    case Role::grad_weights:
      return "grad_weights";
    case Role::grad_combine_send:
      return "grad_combine_send";
    case Role::grad_combine_recv:
      return "grad_combine_recv";
    case Role::grad_expert_output:
      return "grad_expert_output";
    case Role::grad_experts:
      return "grad_experts";
    case Role::grad_dispatch_send:
      return "grad_dispatch_send";
    case Role::grad_dispatch_recv:
      return "grad_dispatch_recv";
  }
  return "?";
}

Schedule build_train_step(const TrainStepSpec& spec) {
  return Builder(spec).build();
}

}  // namespace expedite::schedule
