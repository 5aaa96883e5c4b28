// The tasks of a micro-batch in one virtual stage of a pipeline, layer by layer, without messages.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "expedite/schedule/moe_layer.h"
#include "expedite/schedule/pipeline_step.h"
#include "expedite/schedule/step_writer.h"

namespace expedite::schedule {

/// Items [first, end) of PipelineSpec::bounds.
struct Items {
  int first = 0;
  int end = 0;
};

class StageTasks {
 public:
  /// `cut` is called where something has been started that can run under another micro-batch's tasks;
  /// `weight_grad_done` when an item's gradient has been added to: of dense weights, or of experts.
  struct Events {
    std::function<void()> cut;
    std::function<void(int item, Op reduction, TaskId done)> weight_grad_done;
  };

  StageTasks(StepWriter& writer, const PipelineSpec& spec, const StepSpec& step, Events events);

  /// What follows is such an action; in a pair exchanges are hidden without cutting layers into chunks.
  /// Gathers the first weights that it needs.
  void begin(bool paired, Phase phase, const Items& items);
  /// The first task that needs what the action gets from another stage, if it has been added; or -1.
  [[nodiscard]] TaskId first() const { return first_; }
  /// These are of the writer's micro-batch. Returns the task that ends with the activations for the next
  /// part.
  TaskId forward(const Items& items);
  /// Returns the task that ends with the gradient for the part before.
  TaskId backward(const Items& items, bool weight_grads);
  /// What backward without them left out.
  void weight_grads(const Items& items);

 private:
  [[nodiscard]] int layers() const { return chunked_.step.layers(); }
  [[nodiscard]] int head() const { return spec_.items() - 1; }
  [[nodiscard]] bool sparse(int layer) const { return chunked_.step.sparse[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] bool predicts_more(int layer) const { return layer >= layers() - spec_.mtp_layers; }
  [[nodiscard]] MoeHooks hooks();

  void gather_weights(int item, Pass pass, TaskId after);
  void with_weights(int next, Pass pass, const std::function<void()>& tasks);
  void layer_forward(int layer);
  void loss(const Items& items);
  void recompute(int layer);
  void layer_backward(int layer, bool weight_grads);
  void attention_weight_grads(int layer);
  void expert_weight_grads(int layer, TaskId done);
  void embedding_weight_grads();
  void run_filler();

  struct Plan {
    StepSpec step;
    StepSpec forgetful;  // likewise, but forward keeps nothing
  };
  [[nodiscard]] static Plan plan_of(const StepSpec& step);

  StepWriter& writer_;
  const PipelineSpec& spec_;
  Plan chunked_;
  Plan whole_;
  const Plan* plan_;
  Events events_;
  int filler_ = -1;  // the layer whose attention weight gradients wait for an exchange to run under
  std::map<int, TaskId> losses_;  // by micro-batch
  TaskId last_router_ = -1;       // of the micro-batch that goes forward
  std::map<int, TaskId> loads_;   // by micro-batch: what the routers' gradients wait for
  std::vector<TaskId> gathered_;  // weights of the next item of the action
  TaskId begun_ = -1;             // the latest compute task before the action
  TaskId first_ = -1;             // of the action
};

}  // namespace expedite::schedule
