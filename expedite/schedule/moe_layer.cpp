#include "expedite/schedule/moe_layer.h"

#include <algorithm>
#include <utility>

namespace expedite::schedule {
const MoeLayer::Flow MoeLayer::kForward = {.pass = Pass::forward,
                                           .pack = Op::permute,
                                           .out = Op::dispatch,
                                           .back = Op::combine,
                                           .unpack = Op::unpermute,
                                           .send = Role::dispatch_send,
                                           .relay = Role::relay_out,
                                           .recv = Role::dispatch_recv,
                                           .output = Role::expert_output,
                                           .share = Role::combine_share,
                                           .back_send = Role::combine_send,
                                           .relay_back = Role::relay_back,
                                           .back_recv = Role::combine_recv};
const MoeLayer::Flow MoeLayer::kRecompute = [] {
  Flow flow = kForward;
  flow.pass = Pass::recompute;
  return flow;
}();
const MoeLayer::Flow MoeLayer::kBackward = {.pass = Pass::input_grad,
                                            .pack = Op::unpermute,
                                            .out = Op::combine,
                                            .back = Op::dispatch,
                                            .unpack = Op::permute,
                                            .send = Role::grad_combine_send,
                                            .relay = Role::grad_relay_out,
                                            .recv = Role::grad_combine_recv,
                                            .output = Role::grad_expert_input,
                                            .share = Role::grad_dispatch_share,
                                            .back_send = Role::grad_dispatch_send,
                                            .relay_back = Role::grad_relay_back,
                                            .back_recv = Role::grad_dispatch_recv};

MoeLayer::MoeLayer(StepWriter& writer, const StepSpec& spec, int layer)
    : writer_(writer),
      spec_(spec),
      layer_(layer),
      chunks_(spec.ep_plan.chunking.chunks),
      stream_(spec.expert_parallel_stream) {}

BufferKey MoeLayer::expert_key(Role role, int index) const {
  return spec_.whole_layer_buffers() ? key(role) : key(role, index);
}

Work MoeLayer::work(Op op, const Flow& flow, int index, std::vector<TaskId> after) const {
  return {.op = op, .pass = flow.pass, .layer = layer_, .after = std::move(after), .chunk = chunk(index)};
}

// ---- The order of a direction's tasks

void MoeLayer::run(const Flow& flow, const Cover& cover) {
  for (auto* tasks : {&packed_, &arrived_, &computed_, &returned_}) {
    tasks->assign(static_cast<std::size_t>(chunks_), -1);
  }
  switch (spec_.ep_plan.pipeline) {
    case ChunkPipeline::continuous:
      return run_continuous(flow, cover);
    case ChunkPipeline::pairwise:
      return run_pairwise(flow, cover);
    case ChunkPipeline::none:
      return run_one_by_one(flow, cover);
  }
}

/// A chunk's way out goes ahead of its predecessors' way back, since experts wait for it; unpacking lags, so
/// that it finds its rows there. Inside nodes an arrival is told when experts want it, since what is told
/// after it waits for the wire too.
void MoeLayer::run_continuous(const Flow& flow, const Cover& cover) {
  const int window = spec_.ep_plan.window;
  for (int c = 0; c < std::min(window, chunks_); ++c) {
    send_out(flow, c);
  }
  tell_arrival(flow, 0);
  cover.first();
  const int lag = std::max(1, window - 1);
  for (int c = 0; c < chunks_; ++c) {
    experts(flow, c);
    if (c + window < chunks_) {
      send_out(flow, c + window);
    }
    back(flow, c);
    tell_arrival(flow, c + 1);
    cover.behind_experts(c);
    if (c >= lag) {
      unpack(flow, c - lag);
    }
  }
  cover.last();
  for (int c = spec_.ep_plan.unpacked_early(); c < chunks_; ++c) {
    unpack(flow, c);
  }
}

void MoeLayer::run_pairwise(const Flow& flow, const Cover& cover) {
  for (int first = 0; first < chunks_; first += 2) {
    const int end = std::min(first + 2, chunks_);
    for (int c = first; c < end; ++c) {
      send_out(flow, c);
    }
    if (first == 0) {
      cover.first();
    }
    for (int c = first; c < end; ++c) {
      tell_arrival(flow, c);
      experts(flow, c);
      back(flow, c);
      cover.behind_experts(c);
    }
    if (end == chunks_) {
      cover.last();
    }
    for (int c = first; c < end; ++c) {
      unpack(flow, c);
    }
  }
}

void MoeLayer::run_one_by_one(const Flow& flow, const Cover& cover) {
  cover.first();
  for (int c = 0; c < chunks_; ++c) {
    send_out(flow, c);
    tell_arrival(flow, c);
    experts(flow, c);
    back(flow, c);
    unpack(flow, c);
    cover.behind_experts(c);
  }
  cover.last();
}

// ---- A chunk's tasks, in both directions

void MoeLayer::send_out(const Flow& flow, int index) {
  if (spec_.expert_parallel()) {
    pack(flow, index);
    out(flow, index);
  }
}

void MoeLayer::pack(const Flow& flow, int index) {
  Held held;
  if (spec_.sends_rows()) {
    held.acquires.push_back(key(flow.send, index));
  }
  if (spec_.shares_rows()) {
    held.acquires.push_back(key(flow.recv, index));  // this rank's own rows lie there too
  }
  const bool forward = flow.forward();
  held.uses.push_back(forward ? key(Role::router) : BufferKey{Role::grad_hidden, layer_ + 1});
  // Where rows go is this rank's own choice; how much its node shares, everybody's.
  std::vector<TaskId> after;
  if (forward && metadata_ >= 0 && spec_.shares_rows()) {
    after = {metadata_};
  }
  packed_[static_cast<std::size_t>(index)] = writer_.compute(work(flow.pack, flow, index, after), held);
}

void MoeLayer::out(const Flow& flow, int index) {
  const auto c = static_cast<std::size_t>(index);
  TaskId last = packed_[c];
  if (spec_.sends_in_two_levels()) {
    last = send(work(flow.out, flow, index, {last}), stream_, kExpertParallelGroup,
                {.acquires = {key(flow.relay, index)}, .releases = {key(flow.send, index)}});
    last = send(work(flow.out, flow, index, {last}), Stream::intra, kNodeGroup,
                {.acquires = {key(flow.recv, index)}, .releases = {key(flow.relay, index)}});
  } else if (spec_.sends_rows()) {
    Held held = {.releases = {key(flow.send, index)}};
    (spec_.shares_rows() ? held.uses : held.acquires).push_back(key(flow.recv, index));
    last = send(work(flow.out, flow, index, {last}), stream_, kExpertParallelGroup, std::move(held));
  }
  arrived_[c] = last;
}

/// To the ranks of this node, which read rows where they lie. Behind the last chunk there is none.
void MoeLayer::tell_arrival(const Flow& flow, int index) {
  if (spec_.shares_rows() && index < chunks_) {
    TaskId& last = arrived_[static_cast<std::size_t>(index)];
    last = writer_.communicate(work(flow.out, flow, index, {last}), Stream::intra, Collective::all_gather,
                               kNodeGroup, {.uses = {key(flow.recv, index)}});
  }
}

TaskId MoeLayer::send(const Work& work, Stream stream, GroupId group, const Held& held) {
  return writer_.communicate(work, stream, Collective::all_to_all, group, held);
}

void MoeLayer::experts(const Flow& flow, int index) {
  const auto c = static_cast<std::size_t>(index);
  const bool forward = flow.forward();
  if (!forward && spec_.ep_plan.recompute != MoeRecompute::none) {
    recompute_experts(index);
  }
  Held held = {.acquires = {key(flow.output, index)}};
  if (spec_.shares_rows()) {
    held.acquires.push_back(key(flow.share, index));
    held.uses.push_back(key(flow.recv, index));
  } else if (spec_.sends_rows()) {
    held.acquires.push_back(key(flow.back_send, index));
    held.releases.push_back(key(flow.recv, index));
  }
  if (forward) {
    hold_experts_forward(held, index);
  } else {
    hold_experts_backward(held, index);
  }
  std::vector<TaskId> after;
  if (arrived_[c] >= 0) {
    after = {arrived_[c]};
  }
  computed_[c] = writer_.compute(work(Op::experts, flow, index, after), held);
}

/// Experts keep for backward what it will read and what is not computed again.
void MoeLayer::hold_experts_forward(Held& held, int index) {
  held.uses.push_back(key(Role::router));
  const bool first = !spec_.whole_layer_buffers() || index == 0;
  for (const Role role : {Role::expert_input, Role::gate_up, Role::activated}) {
    (first ? held.acquires : held.uses).push_back(expert_key(role, index));
  }
  const MoeRecompute recompute = spec_.ep_plan.recompute;
  if (!spec_.training || recompute != MoeRecompute::none) {
    held.releases.push_back(expert_key(Role::activated, index));
  }
  if (!spec_.training || recompute == MoeRecompute::full) {
    held.releases.push_back(expert_key(Role::gate_up, index));
  }
  if (!spec_.training) {
    held.releases.push_back(expert_key(Role::expert_input, index));
  }
}

void MoeLayer::hold_experts_backward(Held& held, int index) {
  held.uses.push_back({Role::grad_hidden, layer_ + 1});
  held.uses.push_back(expert_key(Role::expert_input, index));
  held.uses.push_back(expert_key(Role::gate_up, index));
  if (!spec_.whole_layer_buffers()) {
    held.acquires.push_back(expert_key(Role::grad_output, index));
    return;
  }
  for (const Role role : {Role::grad_output, Role::grad_gate_up}) {
    (index == 0 ? held.acquires : held.uses).push_back(expert_key(role, index));
  }
}

void MoeLayer::back(const Flow& flow, int index) {
  const auto c = static_cast<std::size_t>(index);
  if (spec_.shares_rows()) {
    back_through_node(flow, index);
  } else if (spec_.sends_in_two_levels()) {
    const TaskId summed =
        send(work(flow.back, flow, index, {computed_[c]}), Stream::intra, kNodeGroup,
             {.acquires = {key(flow.relay_back, index)}, .releases = {key(flow.back_send, index)}});
    returned_[c] =
        send(work(flow.back, flow, index, {summed}), stream_, kExpertParallelGroup,
             {.acquires = {key(flow.back_recv, index)}, .releases = {key(flow.relay_back, index)}});
  } else if (spec_.sends_rows()) {
    returned_[c] = send(work(flow.back, flow, index, {computed_[c]}), stream_, kExpertParallelGroup,
                        {.acquires = {key(flow.back_recv, index)}, .releases = {key(flow.back_send, index)}});
  }
}

/// What a node's ranks computed for a token of another node is added up before it leaves.
void MoeLayer::back_through_node(const Flow& flow, int index) {
  const auto c = static_cast<std::size_t>(index);
  // Whoever says so has also read all rows that it was sent.
  const TaskId shared = writer_.communicate(
      work(flow.back, flow, index, {computed_[c]}), Stream::intra, Collective::all_gather, kNodeGroup,
      {.uses = {key(flow.share, index)}, .releases = {key(flow.recv, index)}});
  returned_[c] = shared;
  if (spec_.sends_rows()) {
    const TaskId summed =
        writer_.compute(work(Op::node_sum, flow, index, {shared}),
                        {.acquires = {key(flow.back_send, index)}, .uses = {key(flow.output, index)}});
    returned_[c] = send(work(flow.back, flow, index, {summed}), stream_, kExpertParallelGroup,
                        {.acquires = {key(flow.back_recv, index)}, .releases = {key(flow.back_send, index)}});
  }
}

void MoeLayer::unpack(const Flow& flow, int index) {
  const auto c = static_cast<std::size_t>(index);
  const bool forward = flow.forward();
  const bool last = index == chunks_ - 1;
  Held held = {.releases = {key(flow.output, index)}};
  if (spec_.sends_rows()) {
    held.releases.push_back(key(flow.back_recv, index));
  }
  auto& results = index == 0 ? held.acquires : held.uses;
  auto& inputs = forward && last && !spec_.training ? held.releases : held.uses;
  if (forward) {
    results.push_back({Role::hidden, layer_ + 1});
    if (flow.pass == Pass::recompute && last) {
      held.releases.push_back({Role::hidden, layer_ + 1});
    }
    inputs.push_back(key(Role::mid));
    inputs.push_back(key(Role::router));
  } else {
    results.push_back(key(Role::grad_mid));
    results.push_back(key(Role::grad_weights));
  }
  if (spec_.shared_experts) {
    const bool done = last && (forward || weight_grads_now_);
    (done ? held.releases : held.uses).push_back(key(forward ? Role::shared_output : Role::grad_shared));
  }
  std::vector<TaskId> after;
  if (returned_[c] >= 0) {
    after = {returned_[c]};
  }
  const TaskId unpacked = writer_.compute(work(flow.unpack, flow, index, after), held);
  if (spec_.shares_rows()) {
    writer_.communicate(work(Op::retire, flow, index, {unpacked}), Stream::intra, Collective::all_gather,
                        kNodeGroup, {.releases = {key(flow.share, index)}});
  }
}

// ---- What runs besides

void MoeLayer::recompute_experts(int index) {
  Held held = {.uses = {expert_key(Role::expert_input, index)}};
  const auto renew = [&](Role role) {
    writer_.renew(expert_key(role, index));
    held.acquires.push_back(expert_key(role, index));
  };
  renew(Role::activated);
  if (spec_.ep_plan.recompute == MoeRecompute::full) {
    renew(Role::gate_up);
  } else {
    held.uses.push_back(expert_key(Role::gate_up, index));
  }
  writer_.compute({.op = Op::experts, .pass = Pass::recompute, .layer = layer_, .chunk = chunk(index)}, held);
}

/// Of chunks [first, first + count).
void MoeLayer::weight_grad(int first, int count) {
  const bool whole = spec_.whole_layer_buffers();
  const bool last = !whole || first + count == chunks_;
  Held held;
  std::vector<Role> roles = {Role::expert_input, Role::gate_up, Role::activated, Role::grad_output};
  if (whole) {
    roles.push_back(Role::grad_gate_up);
  }
  for (const Role role : roles) {
    (last ? held.releases : held.uses).push_back(expert_key(role, first));
  }
  weight_grad_ = writer_.compute(
      {.op = Op::experts, .pass = Pass::weight_grad, .layer = layer_, .chunk = chunk(first), .chunks = count},
      held);
}

/// A weight gradient over many chunks reads and writes the gradient once, and its products are large; but it
/// must not come so late that compute has waited for communication before. So: the first half of the chunks
/// when they are through, then the rest, under the last ways back.
void MoeLayer::weight_grad_behind(int index) {
  const bool continuous = spec_.ep_plan.pipeline == ChunkPipeline::continuous;
  if (!spec_.whole_layer_buffers() || !continuous) {
    weight_grad(index, 1);
    return;
  }
  const int half = chunks_ >= 4 ? chunks_ / 2 : 0;
  if (index + 1 == half) {
    weight_grad(0, half);
  } else if (index + 1 == chunks_) {
    weight_grad(half, chunks_ - half);
  }
}

/// Of the first part of the tokens (those unpacked early), of the rest, or of both.
void MoeLayer::shared_experts(Pass pass, int first_half, int halves) {
  if (!spec_.shared_experts) {
    return;
  }
  Held held = {.uses = {key(Role::router)}};
  const bool first = first_half == 0;
  const bool last = first_half + halves == 2;
  if (pass == Pass::forward || pass == Pass::recompute) {
    held.uses.push_back(key(Role::mid));
    for (const Role role : {Role::shared_experts, Role::shared_output}) {
      (first ? held.acquires : held.uses).push_back(key(role));
    }
    if (last && !spec_.training) {
      held.releases.push_back(key(Role::shared_experts));
    }
  } else if (pass == Pass::input_grad) {
    held.acquires = {key(Role::grad_shared)};
    held.uses = {key(Role::router), key(Role::shared_experts), {Role::grad_hidden, layer_ + 1}};
  } else {
    held.releases = {key(Role::shared_experts)};
    auto& inputs = weight_grads_now_ ? held.uses : held.releases;
    for (const BufferKey& input :
         {key(Role::router), key(Role::grad_shared), BufferKey{Role::grad_hidden, layer_ + 1}}) {
      inputs.push_back(input);
    }
  }
  writer_.compute({.op = Op::shared_experts,
                   .pass = pass,
                   .layer = layer_,
                   .chunk = halves == 2 ? -1 : first_half,
                   .piece = Piece::half},
                  held);
}

TaskId MoeLayer::forward(const MoeHooks& hooks) {
  const TaskId router = writer_.compute({.op = Op::router, .layer = layer_},
                                        {.acquires = {key(Role::router)}, .uses = {key(Role::mid)}});
  if (spec_.expert_parallel()) {
    metadata_ = writer_.communicate({.op = Op::metadata, .layer = layer_, .after = {router}}, stream_,
                                    Collective::all_gather, kExpertParallelGroup);
  }
  run_forward(kForward, hooks);
  return router;
}

void MoeLayer::recompute(const MoeHooks& hooks) {
  for (const Role role :
       {Role::router, Role::shared_experts, Role::shared_output, Role::dispatch_send, Role::relay_out,
        Role::dispatch_recv, Role::expert_input, Role::gate_up, Role::activated, Role::expert_output,
        Role::combine_share, Role::combine_send, Role::relay_back, Role::combine_recv}) {
    writer_.renew(role, layer_);
  }
  writer_.renew(Role::hidden, layer_ + 1);
  writer_.compute({.op = Op::router, .pass = Pass::recompute, .layer = layer_},
                  {.acquires = {key(Role::router)}, .uses = {key(Role::mid)}});
  run_forward(kRecompute, hooks);
}

void MoeLayer::run_forward(const Flow& flow, const MoeHooks& hooks) {
  const bool covers = spec_.expert_parallel() && spec_.ep_plan.pipeline != ChunkPipeline::none;
  run(flow, {.first =
                 [&] {
                   hooks.out_under_way();
                   shared_experts(flow.pass, 0, covers ? 1 : 2);
                 },
             .behind_experts = [](int) {},
             .last =
                 [&] {
                   if (covers) {
                     shared_experts(flow.pass, 1, 1);
                   }
                   hooks.back_under_way();
                 }});
}

TaskId MoeLayer::backward(const MoeBackward& context) {
  weight_grads_now_ = context.weight_grads;
  const bool covers = spec_.ep_plan.pipeline != ChunkPipeline::none;
  const auto shared_weight_grad = [&] {
    if (weight_grads_now_) {
      shared_experts(Pass::weight_grad, 0, 2);
    }
  };
  run(kBackward, {.first =
                      [&] {
                        context.hooks.out_under_way();
                        shared_experts(Pass::input_grad, 0, 2);
                        if (!covers) {
                          shared_weight_grad();
                        }
                      },
                  .behind_experts =
                      [&](int index) {
                        if (weight_grads_now_) {
                          weight_grad_behind(index);
                        }
                      },
                  .last =
                      [&] {
                        if (covers) {
                          shared_weight_grad();
                        }
                        context.hooks.back_under_way();
                      }});
  Held held = {.uses = {key(Role::grad_mid)}, .releases = {key(Role::grad_weights), key(Role::mid)}};
  // Shared experts' weight gradients read these too.
  const bool last = weight_grads_now_ || !spec_.shared_experts;
  for (const BufferKey& input : {key(Role::router), BufferKey{Role::grad_hidden, layer_ + 1}}) {
    (last ? held.releases : held.uses).push_back(input);
  }
  writer_.compute(
      {.op = Op::router, .pass = Pass::input_grad, .layer = layer_, .after = context.router_after}, held);
  return weight_grad_;
}

TaskId MoeLayer::weight_grads() {
  weight_grads_now_ = false;
  if (spec_.whole_layer_buffers()) {
    weight_grad(0, chunks_);
  } else {
    for (int index = 0; index < chunks_; ++index) {
      weight_grad(index, 1);
    }
  }
  shared_experts(Pass::weight_grad, 0, 2);
  return weight_grad_;
}

}  // namespace expedite::schedule
