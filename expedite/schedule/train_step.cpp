#include "expedite/schedule/train_step.h"

#include <utility>

#include "expedite/schedule/layer_tasks.h"
#include "expedite/schedule/moe_layer.h"
#include "expedite/schedule/step_writer.h"

namespace expedite::schedule {
namespace {

class StepBuilder {
 public:
  explicit StepBuilder(const StepSpec& spec) : spec_(spec), layers_(spec.layers()), writer_(spec) {}

  Schedule build() {
    for (int micro_batch = 0; micro_batch < spec_.micro_batches; ++micro_batch) {
      writer_.begin_micro_batch(micro_batch);
      forward();
      if (spec_.training) {
        backward();
      }
    }
    writer_.begin_micro_batch(-1);
    finish();
    return writer_.take();
  }

 private:
  [[nodiscard]] bool sparse(int layer) const { return spec_.sparse[static_cast<std::size_t>(layer)]; }

  // ---- Forward

  void forward() {
    writer_.compute({.op = Op::embedding}, {.acquires = {{Role::hidden, 0}}});
    TaskId last_router = -1;
    for (int layer = 0; layer < layers_; ++layer) {
      attention_forward(writer_, layer, spec_.training ? AttentionKept::all : AttentionKept::nothing);
      if (sparse(layer)) {
        last_router = MoeLayer(writer_, spec_, layer).forward();
      } else {
        dense_forward(writer_, layer, spec_.training);
      }
    }
    loads_ready_.clear();
    if (spec_.batch_aux_loss && last_router >= 0 && spec_.group_size(kWorldGroup) > 1) {
      loads_ready_ = {writer_.communicate({.op = Op::loads, .after = {last_router}},
                                          spec_.expert_parallel_stream, Collective::all_gather, kWorldGroup)};
    }
    Held held = {.releases = {{Role::hidden, layers_}}};
    if (spec_.training) {
      held.acquires = {{Role::grad_hidden, layers_}};
    }
    loss_ = writer_.compute({.op = Op::loss}, held);
    if (spec_.training) {
      reduce_dense(layers_, loss_);
    }
  }

  // ---- Backward

  void backward() {
    for (int layer = layers_ - 1; layer >= 0; --layer) {
      if (sparse(layer)) {
        moe_backward(layer);
      } else {
        dense_backward(layer);
      }
      attention_input_grad(writer_, layer);
      filler_ = layer;
    }
    run_filler();
    const TaskId embedding = writer_.compute({.op = Op::embedding, .pass = Pass::weight_grad},
                                             {.releases = {{Role::grad_hidden, 0}}});
    reduce_dense(-1, embedding);
  }

  /// The attention weight gradients of the layer above, kept back until an all-to-all is under way.
  void run_filler() {
    const int layer = std::exchange(filler_, -1);
    if (layer < 0) {
      return;
    }
    const TaskId done = attention_weight_grad(writer_, layer);
    reduce_dense(layer, done);
  }

  void dense_backward(int layer) {
    dense_input_grad(writer_, layer);
    dense_weight_grad(writer_, layer);
    run_filler();
  }

  void moe_backward(int layer) {
    const TaskId weights =
        MoeLayer(writer_, spec_, layer)
            .backward({.hooks = {.out_under_way = [&] { run_filler(); }}, .router_after = loads_ready_});
    if (writer_.last_micro_batch() && spec_.group_size(kExpertDataParallelGroup) > 1) {
      reduced_.push_back(writer_.communicate(
          {.op = Op::reduce_experts, .pass = Pass::update, .layer = layer, .after = {weights}},
          Stream::reduce, Collective::all_reduce, kExpertDataParallelGroup));
    }
  }

  // ---- Update

  /// Gradients of a layer's dense parameters; of the embedding (layer -1); of the final norm and head (layer
  /// L).
  void reduce_dense(int layer, TaskId after) {
    if (writer_.last_micro_batch() && spec_.group_size(kWorldGroup) > 1) {
      reduced_.push_back(writer_.communicate(
          {.op = Op::reduce_dense, .pass = Pass::update, .layer = layer, .after = {after}}, Stream::reduce,
          Collective::all_reduce, kWorldGroup));
    }
  }

  void finish() {
    const bool update = spec_.training && spec_.update;
    std::vector<TaskId> sums_ready = {loss_};
    if (spec_.training) {
      sums_ready = {writer_.compute({.op = Op::gradient_norm, .pass = Pass::update, .after = reduced_}, {})};
    }
    std::vector<TaskId> statistics_ready;
    if (spec_.group_size(kWorldGroup) > 1) {
      statistics_ready = {
          writer_.communicate({.op = Op::statistics, .pass = Pass::update, .after = sums_ready},
                              spec_.expert_parallel_stream, Collective::all_gather, kWorldGroup)};
    }
    for (int layer = -1; update && layer <= layers_; ++layer) {
      writer_.compute({.op = Op::optimizer, .pass = Pass::update, .layer = layer, .after = statistics_ready},
                      {});
    }
  }

  const StepSpec& spec_;
  int layers_;
  StepWriter writer_;
  int filler_ = -1;
  TaskId loss_ = -1;
  std::vector<TaskId> loads_ready_;
  std::vector<TaskId> reduced_;
};

}  // namespace

Schedule build_train_step(const StepSpec& spec) {
  return StepBuilder(spec).build();
}

Schedule build_moe_layer_step(const StepSpec& spec) {
  StepWriter writer(spec);
  writer.begin_micro_batch(0);
  MoeLayer layer(writer, spec, 0);
  writer.compute({.op = Op::boundary, .layer = 0}, {.acquires = {{Role::mid, 0}}});
  layer.forward();
  if (spec.training) {
    writer.compute({.op = Op::boundary, .layer = 1},
                   {.acquires = {{Role::grad_hidden, 1}}, .releases = {{Role::hidden, 1}}});
    layer.backward({});
    writer.compute({.op = Op::boundary, .pass = Pass::input_grad, .layer = 0},
                   {.releases = {{Role::grad_mid, 0}}});
  } else {
    writer.compute({.op = Op::boundary, .layer = 1}, {.releases = {{Role::hidden, 1}}});
  }
  return writer.take();
}

}  // namespace expedite::schedule
