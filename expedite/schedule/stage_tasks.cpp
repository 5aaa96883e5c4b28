#include "expedite/schedule/stage_tasks.h"

#include <algorithm>
#include <utility>

#include "expedite/schedule/layer_tasks.h"

namespace expedite::schedule {

StageTasks::StageTasks(StepWriter& writer, const PipelineSpec& spec, const StepSpec& step, Events events)
    : writer_(writer),
      spec_(spec),
      chunked_(plan_of(step)),
      whole_(chunked_),
      plan_(&chunked_),
      events_(std::move(events)) {
  // Where buffers are of chunks, forward and backward must have the same.
  if (step.whole_layer_buffers()) {
    StepSpec whole = step;
    whole.ep_plan.chunking = {};
    whole_ = plan_of(whole);
  }
}

StageTasks::Plan StageTasks::plan_of(const StepSpec& step) {
  Plan plan{step, step};
  plan.forgetful.training = false;
  return plan;
}

MoeHooks StageTasks::hooks() {
  return {.out_under_way =
              [this] {
                run_filler();
                events_.cut();
              },
          .back_under_way = [this] { events_.cut(); }};
}

void StageTasks::begin(bool paired, Phase phase, const Items& items) {
  plan_ = paired ? &whole_ : &chunked_;
  begun_ = writer_.last_compute();
  first_ = -1;
  gathered_.clear();
  const int last = std::min(items.end, head()) - 1;
  if (phase == Phase::forward) {
    gather_weights(items.first, Pass::forward, -1);
  } else if (phase != Phase::weight_grad && last >= std::max(items.first, 1)) {
    gather_weights(last, Pass::input_grad, -1);
  }
}

// ---- Weights that are sharded

void StageTasks::gather_weights(int item, Pass pass, TaskId after) {
  if (!spec_.sharded_weights) {
    return;
  }
  const int layer = item - 1;
  const bool has_experts = layer >= 0 && layer < layers() && sparse(layer);
  for (const GroupId group : {kDataParallelGroup, kExpertDataParallelGroup}) {
    if (chunked_.step.group_size(group) > 1 && (group == kDataParallelGroup || has_experts)) {
      Work work = {.op = Op::gather_weights, .pass = pass, .layer = layer};
      if (after >= 0) {
        work.after = {after};
      }
      gathered_.push_back(
          writer_.communicate(std::move(work), Stream::reduce, Collective::all_gather, group));
    }
  }
}

/// The item's tasks, of which the first waits for its weights; while they run, those of `next` are gathered
/// (-1: of nothing).
void StageTasks::with_weights(int next, Pass pass, const std::function<void()>& tasks) {
  const std::vector<TaskId> ready = std::exchange(gathered_, {});
  if (next >= 0) {
    const TaskId before = writer_.last_compute();
    gather_weights(next, pass, before == begun_ ? -1 : before);
  }
  const TaskId first = writer_.next_task();
  first_ = first_ < 0 ? first : first_;
  tasks();
  for (const TaskId gathered : ready) {
    writer_.wait(first, gathered);
  }
}

// ---- Forward

TaskId StageTasks::forward(const Items& items) {
  for (int item = items.first; item < items.end; ++item) {
    with_weights(item + 1 < items.end ? item + 1 : -1, Pass::forward, [&] {
      if (item == 0) {
        writer_.compute({.op = Op::embedding}, {.acquires = {{Role::hidden, 0}}});
      } else if (item == head()) {
        loss(items);
      } else {
        layer_forward(item - 1);
      }
    });
  }
  return writer_.last_compute();
}

void StageTasks::layer_forward(int layer) {
  const LayerRecompute recompute = spec_.recompute_of(layer);
  const bool forget = recompute == LayerRecompute::full;
  if (predicts_more(layer)) {
    writer_.compute({.op = Op::mtp_projection, .layer = layer},
                    {.acquires = {{Role::mtp, layer}}, .uses = {{Role::hidden, layer}}});
  }
  attention_forward(writer_, layer,
                    recompute == LayerRecompute::none ? AttentionKept::all : AttentionKept::input);
  if (sparse(layer)) {
    last_router_ = MoeLayer(writer_, forget ? plan_->forgetful : plan_->step, layer).forward(hooks());
  } else {
    dense_forward(writer_, layer, !forget);
  }
}

/// With all its gradients, of the head's weights too.
void StageTasks::loss(const Items& items) {
  const StepSpec& step = chunked_.step;
  if (step.batch_aux_loss && last_router_ >= 0 && step.group_size(kWorldGroup) > 1) {
    loads_[writer_.micro_batch()] =
        writer_.communicate({.op = Op::loads, .after = {last_router_}}, step.expert_parallel_stream,
                            Collective::all_gather, kWorldGroup);
  }
  Held held = {.acquires = {{Role::grad_hidden, layers()}}, .releases = {{Role::hidden, layers()}}};
  for (int layer = std::max(layers() - spec_.mtp_layers, items.first - 1); layer < layers(); ++layer) {
    held.uses.push_back({Role::hidden, layer});  // the head predicts from these too
  }
  const TaskId done = writer_.compute({.op = Op::loss}, held);
  losses_[writer_.micro_batch()] = done;
  events_.weight_grad_done(head(), Op::reduce_dense, done);
}

// ---- Backward

TaskId StageTasks::backward(const Items& items, bool weight_grads) {
  TaskId done = items.end > head() ? losses_.at(writer_.micro_batch()) : -1;
  for (int item = std::min(items.end, head()) - 1; item >= std::max(items.first, 1); --item) {
    with_weights(item > std::max(items.first, 1) ? item - 1 : -1, Pass::input_grad,
                 [&] { layer_backward(item - 1, weight_grads); });
    done = writer_.last_compute();
  }
  events_.cut();  // what is left runs while messages are on their way
  run_filler();
  if (items.first == 0 && weight_grads) {
    embedding_weight_grads();
  }
  return done;
}

void StageTasks::recompute(int layer) {
  attention_recompute(writer_, layer, true);
  if (sparse(layer)) {
    MoeLayer(writer_, plan_->step, layer).recompute(hooks());
  } else {
    dense_recompute(writer_, layer);
  }
}

void StageTasks::layer_backward(int layer, bool weight_grads) {
  if (spec_.recompute_of(layer) == LayerRecompute::full) {
    recompute(layer);
  }
  if (sparse(layer)) {
    MoeBackward context{.hooks = hooks(), .weight_grads = weight_grads};
    if (const auto loads = loads_.find(writer_.micro_batch()); loads != loads_.end()) {
      context.router_after = {loads->second};
    }
    const TaskId experts = MoeLayer(writer_, plan_->step, layer).backward(context);
    if (weight_grads) {
      expert_weight_grads(layer, experts);
    }
  } else {
    dense_input_grad(writer_, layer);
    if (weight_grads) {
      dense_weight_grad(writer_, layer);
      run_filler();
    }
  }
  if (spec_.recompute_of(layer) == LayerRecompute::attention) {
    attention_recompute(writer_, layer, false);
  }
  attention_input_grad(writer_, layer);
  if (predicts_more(layer)) {
    writer_.compute({.op = Op::mtp_projection, .pass = Pass::input_grad, .layer = layer},
                    {.uses = {{Role::grad_hidden, layer}}, .releases = {{Role::mtp, layer}}});
  }
  filler_ = weight_grads ? layer : -1;
}

void StageTasks::run_filler() {
  const int layer = std::exchange(filler_, -1);
  if (layer >= 0) {
    attention_weight_grads(layer);
  }
}

// ---- Weight gradients

void StageTasks::weight_grads(const Items& items) {
  for (int item = std::min(items.end, head()) - 1; item >= std::max(items.first, 1); --item) {
    const int layer = item - 1;
    if (sparse(layer)) {
      expert_weight_grads(layer, MoeLayer(writer_, plan_->step, layer).weight_grads());
    } else {
      dense_weight_grad(writer_, layer);
    }
    attention_weight_grads(layer);
  }
  if (items.first == 0) {
    embedding_weight_grads();
  }
}

void StageTasks::attention_weight_grads(int layer) {
  events_.weight_grad_done(layer + 1, Op::reduce_dense, attention_weight_grad(writer_, layer));
}

void StageTasks::expert_weight_grads(int layer, TaskId done) {
  events_.weight_grad_done(layer + 1, Op::reduce_experts, done);
}

void StageTasks::embedding_weight_grads() {
  events_.weight_grad_done(0, Op::reduce_dense,
                           writer_.compute({.op = Op::embedding, .pass = Pass::weight_grad},
                                           {.releases = {{Role::grad_hidden, 0}}}));
}

}  // namespace expedite::schedule
