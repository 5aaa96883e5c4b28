#include "examples/two_micro_batches/builder.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/schedule/layer_tasks.h"
#include "expedite/schedule/moe_layer.h"
#include "expedite/schedule/step_writer.h"

namespace expedite::examples {

using schedule::Collective;
using schedule::Op;
using schedule::Pass;
using schedule::Role;
using schedule::TaskId;

namespace {

class Builder {
 public:
  explicit Builder(const schedule::StepSpec& spec) : spec_(spec), writer_(spec) {}

  schedule::Schedule build() {
    for (int first = 0; first < spec_.micro_batches; first += 2) {
      weave(first, [this] { forward(); });
      weave(first, [this] { backward(); });
    }
    finish();
    return writer_.take(order_);
  }

 private:
  // ---- Recording: the tasks of one micro-batch, cut wherever something has been sent

  /// Tasks with ids [begin, end).
  struct Segment {
    TaskId begin = 0;
    TaskId end = 0;
  };

  std::vector<Segment> record(int micro_batch, const std::function<void()>& tasks) {
    segments_.clear();
    begin_ = writer_.next_task();
    writer_.begin_micro_batch(micro_batch);
    tasks();
    cut();
    return segments_;
  }

  void cut() {
    const TaskId end = writer_.next_task();
    segments_.push_back({begin_, end});
    begin_ = end;
  }

  // ---- Weaving: the segments of two micro-batches by turns

  void weave(int first, const std::function<void()>& tasks) {
    const std::vector<Segment> a = record(first, tasks);
    std::vector<Segment> b;
    if (first + 1 < spec_.micro_batches) {
      b = record(first + 1, tasks);
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
      append(a[i]);
      if (i < b.size()) {
        append(b[i]);
      }
    }
  }

  void append(const Segment& segment) {
    for (TaskId task = segment.begin; task < segment.end; ++task) {
      order_.push_back(task);
    }
  }

  // ---- Hooks: where the layer's builder has sent something, and would wait

  schedule::MoeHooks hooks() {
    return {.out_under_way = [this] { cut(); }, .back_under_way = [this] { cut(); }};
  }

  // ---- The tasks of a micro-batch

  void forward() {
    writer_.compute({.op = Op::embedding}, {.acquires = {{Role::hidden, 0}}});
    for (int layer = 0; layer < spec_.layers(); ++layer) {
      attention_forward(writer_, layer, schedule::AttentionKept::all);
      schedule::MoeLayer(writer_, spec_, layer).forward(hooks());
    }
    const TaskId loss = writer_.compute({.op = Op::loss}, {.acquires = {{Role::grad_hidden, spec_.layers()}},
                                                           .releases = {{Role::hidden, spec_.layers()}}});
    if (last()) {
      reduce(Op::reduce_dense, spec_.layers(), loss, schedule::kWorldGroup);
    }
  }

  void backward() {
    for (int layer = spec_.layers() - 1; layer >= 0; --layer) {
      const TaskId experts = schedule::MoeLayer(writer_, spec_, layer).backward({.hooks = hooks()});
      attention_input_grad(writer_, layer);
      const TaskId attention = attention_weight_grad(writer_, layer);
      if (last()) {
        reduce(Op::reduce_experts, layer, experts, schedule::kExpertDataParallelGroup);
        reduce(Op::reduce_dense, layer, attention, schedule::kWorldGroup);
      }
    }
    const TaskId embedding = writer_.compute({.op = Op::embedding, .pass = Pass::weight_grad},
                                             {.releases = {{Role::grad_hidden, 0}}});
    if (last()) {
      reduce(Op::reduce_dense, -1, embedding, schedule::kWorldGroup);
    }
  }

  /// Gradients are whole once the last micro-batch has added to them; the one beside it comes before it.
  [[nodiscard]] bool last() const { return writer_.last_micro_batch(); }

  void reduce(Op op, int layer, TaskId done, schedule::GroupId group) {
    if (spec_.group_size(group) > 1) {
      reduced_.push_back(
          writer_.communicate({.op = op, .pass = Pass::update, .layer = layer, .after = {done}},
                              schedule::Stream::reduce, Collective::all_reduce, group));
    }
  }

  // ---- The end of the step

  void finish() {
    writer_.begin_micro_batch(-1);
    const TaskId end = writer_.next_task();
    std::vector<TaskId> ready = {
        writer_.compute({.op = Op::gradient_norm, .pass = Pass::update, .after = reduced_}, {})};
    if (spec_.group_size(schedule::kWorldGroup) > 1) {
      ready = {writer_.communicate({.op = Op::statistics, .pass = Pass::update, .after = ready},
                                   spec_.expert_parallel_stream, Collective::all_gather,
                                   schedule::kWorldGroup)};
    }
    for (int layer = -1; spec_.update && layer <= spec_.layers(); ++layer) {
      writer_.compute({.op = Op::optimizer, .pass = Pass::update, .layer = layer, .after = ready}, {});
    }
    append({end, writer_.next_task()});
  }

  const schedule::StepSpec& spec_;
  schedule::StepWriter writer_;
  std::vector<Segment> segments_;
  TaskId begin_ = 0;           // of the segment being recorded
  std::vector<TaskId> order_;  // in which the tasks stand in the end
  std::vector<TaskId> reduced_;
};

}  // namespace

schedule::Schedule build_two_micro_batches(const schedule::StepSpec& spec) {
  require(std::ranges::find(spec.sparse, false) == spec.sparse.end(),
          "two_micro_batches: layer {} has no experts, and this builder knows none without",
          std::ranges::find(spec.sparse, false) - spec.sparse.begin());
  require(!spec.batch_aux_loss,
          "two_micro_batches gathers no loads for an auxiliary loss over the whole batch: take one over each "
          "sequence");
  return Builder(spec).build();
}

}  // namespace expedite::examples
