#include "expedite/schedule/pipeline_step.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "expedite/base/error.h"
#include "expedite/schedule/stage_messages.h"
#include "expedite/schedule/stage_tasks.h"

namespace expedite::schedule {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

StepSpec step_of(const PipelineSpec& spec) {
  StepSpec step = spec.step;
  step.training = true;
  step.micro_batches = spec.shape.micro_batches;
  return step;
}

class PipelineBuilder {
 public:
  explicit PipelineBuilder(const PipelineSpec& spec)
      : spec_(spec),
        step_(step_of(spec)),
        bounds_(spec.bounds.empty() ? even_bounds(spec.items(), parts_of(spec.shape)) : spec.bounds),
        writer_(step_),
        incoming_(spec.shape, spec.stage),
        tasks_(writer_, spec_, step_,
               {.cut = [this] { cut(); },
                .weight_grad_done = [this](int item, Op reduction,
                                           TaskId done) { count_weight_grad(item, reduction, done); }}) {}

  Schedule build() {
    const std::vector<Action> order = stage_order(spec_.shape, spec_.stage);
    for (auto action = order.begin(); action != order.end(); ++action) {
      const auto next = action + 1;
      if (action->paired) {
        run_pair(*action, *next);
        ++action;
      } else if (next != order.end() && gradients_of_one(*action, *next)) {
        run({Phase::backward, action->virtual_stage, action->micro_batch});
        ++action;
      } else {
        run(*action);
      }
    }
    writer_.begin_micro_batch(-1);
    const TaskId end = writer_.next_task();
    finish();
    append({end, writer_.next_task()});
    return writer_.take(order_);
  }

 private:
  /// Tasks with ids [begin, end).
  struct Segment {
    TaskId begin = 0;
    TaskId end = 0;
  };
  struct Recording {
    std::vector<Segment> segments;
    TaskId output = -1;  // ends with what is sent
  };

  // ---- Order

  /// Input gradients with their weight gradients straight after, which can fill the waits of those.
  static bool gradients_of_one(const Action& first, const Action& second) {
    return first.phase == Phase::input_grad && second.phase == Phase::weight_grad &&
           first.virtual_stage == second.virtual_stage && first.micro_batch == second.micro_batch;
  }

  void run(const Action& action) {
    const TaskId input = receive(action);
    const Recording recording = record(action, input);
    for (const Segment& segment : recording.segments) {
      append(segment);
    }
    send(action, recording.output);
  }

  /// By turns, backward first: what a segment leaves under way runs under the next one of the other. Where
  /// one has more segments, they are spread.
  void run_pair(const Action& forward, const Action& backward) {
    const TaskId activations = receive(forward);
    const TaskId gradient = receive(backward);
    const Recording up = record(forward, activations);
    const Recording down = record(backward, gradient);
    std::size_t b = 0;
    for (std::size_t f = 0; f < up.segments.size() || b < down.segments.size();) {
      // Of n segments, the i-th has its place at (i + 1/2) / n of the pair.
      const bool take_backward =
          f == up.segments.size() || (b < down.segments.size() &&
                                      (2 * b + 1) * up.segments.size() <= (2 * f + 1) * down.segments.size());
      append(take_backward ? down.segments[b++] : up.segments[f++]);
    }
    send(forward, up.output);
    send(backward, down.output);
  }

  /// The tasks of an action, of which the first waits for `input`.
  Recording record(const Action& action, TaskId input) {
    recording_ = {};
    begin_ = writer_.next_task();
    writer_.begin_micro_batch(action.micro_batch);
    const Items items = items_of(action);
    tasks_.begin(action.paired, action.phase, items);
    const TaskId begin = writer_.next_task();
    switch (action.phase) {
      case Phase::forward:
        recording_.output = tasks_.forward(items);
        break;
      case Phase::backward:
      case Phase::input_grad:
        recording_.output = tasks_.backward(items, action.phase == Phase::backward);
        break;
      case Phase::weight_grad:
        tasks_.weight_grads(items);
        break;
    }
    cut();
    const TaskId first = tasks_.first() >= 0 ? tasks_.first() : begin;
    // An embedding alone has no input gradients: its weight gradients are the first to read what came.
    TaskId& unread = unread_[{action.virtual_stage, action.micro_batch}];
    if (action.phase == Phase::weight_grad) {
      input = std::exchange(unread, 0) - 1;
    }
    if (input >= 0 && first == writer_.next_task()) {
      unread = input + 1;
    } else if (input >= 0) {
      writer_.wait(first, input);
    }
    return std::move(recording_);
  }

  void cut() {
    const TaskId end = writer_.next_task();
    recording_.segments.push_back({begin_, end});
    begin_ = end;
  }

  void append(const Segment& segment) {
    for (TaskId task = segment.begin; task < segment.end; ++task) {
      order_.push_back(task);
    }
  }

  // ---- Messages

  [[nodiscard]] Items items_of(const Action& action) const {
    const std::size_t part = at(part_at(spec_.shape, spec_.stage, action.virtual_stage));
    return {bounds_[part], bounds_[part + 1]};
  }

  /// The receive that `action` must wait for, or -1; those before it are issued too.
  TaskId receive(const Action& action) {
    const std::optional<Output> input = input_of(spec_.shape, spec_.stage, action);
    if (!input) {
      return -1;
    }
    return incoming_.receive_up_to(*input, [&](const Message& message) {
      return add_message(message, input->stream, Op::receive, Collective::receive, -1);
    });
  }

  void send(const Action& action, TaskId ready) {
    if (const std::optional<Output> output = output_of(spec_.shape, spec_.stage, action)) {
      add_message(output->message, output->stream, Op::send, Collective::send, ready);
    }
  }

  TaskId add_message(const Message& message, Stream stream, Op op, Collective collective, TaskId ready) {
    writer_.begin_micro_batch(message.micro_batch);
    // The layer that the boundary lies before: the head counts as the one after the last.
    const int layer = bounds_[at(message.part + (message.gradient ? 1 : 0))] - 1;
    const BufferKey key = {message.gradient ? Role::grad_hidden : Role::hidden, layer};
    Held held;
    if (collective == Collective::receive) {
      writer_.renew(key);
      held.acquires = {key};
    } else {
      held.releases = {key};
    }
    Work work = {.op = op,
                 .pass = message.gradient ? Pass::input_grad : Pass::forward,
                 .chunk = message.part,
                 .piece = Piece::part};
    if (ready >= 0) {
      work.after = {ready};
    }
    const int stage = neighbour(spec_.shape, spec_.stage, stream);
    const TaskId id = writer_.message(std::move(work), stream, collective, kPipelineGroup,
                                      step_.groups[kPipelineGroup].ranks[at(stage)], held);
    append({id, id + 1});
    return id;
  }

  // ---- Reduction and update

  [[nodiscard]] int micro_batches_of_part() const {
    return spec_.shape.micro_batches / (spec_.shape.kind == PipelineKind::dualpipe ? 2 : 1);
  }

  void count_weight_grad(int item, Op reduction, TaskId done) {
    const bool last = ++added_[{item, reduction}] == micro_batches_of_part();
    if (last || spec_.sharded_gradients) {
      const GroupId group = reduction == Op::reduce_experts ? kExpertDataParallelGroup : kDataParallelGroup;
      if (step_.group_size(group) > 1) {
        const int micro_batch = writer_.micro_batch();
        if (last) {
          writer_.begin_micro_batch(-1);  // which one is the last differs between dualpipe's copies
        }
        reduced_.push_back(writer_.communicate(
            {.op = reduction, .pass = Pass::update, .layer = item - 1, .after = {done}}, Stream::reduce,
            spec_.sharded_optimizer ? Collective::reduce_scatter : Collective::all_reduce, group));
        writer_.begin_micro_batch(micro_batch);
      }
    }
  }

  void finish() {
    std::vector<TaskId> ready = {
        writer_.compute({.op = Op::gradient_norm, .pass = Pass::update, .after = reduced_}, {})};
    if (step_.group_size(kWorldGroup) > 1) {
      ready = {writer_.communicate({.op = Op::statistics, .pass = Pass::update, .after = ready},
                                   step_.expert_parallel_stream, Collective::all_gather, kWorldGroup)};
    }
    // In the order of the model, which is the same where dualpipe's copies are.
    std::vector<Items> held;
    for (int virtual_stage = 0; virtual_stage < virtual_stages_of(spec_.shape); ++virtual_stage) {
      held.push_back(items_of({.virtual_stage = virtual_stage}));
    }
    std::ranges::sort(held, {}, &Items::first);
    for (const Items& items : held) {
      for (int item = items.first; step_.update && item < items.end; ++item) {
        update(item, ready);
      }
    }
  }

  void update(int item, const std::vector<TaskId>& ready) {
    const int layer = item - 1;
    const TaskId updated =
        writer_.compute({.op = Op::optimizer, .pass = Pass::update, .layer = layer, .after = ready}, {});
    const bool sparse = layer >= 0 && layer < step_.layers() && step_.sparse[at(layer)];
    for (const GroupId group : {kDataParallelGroup, kExpertDataParallelGroup}) {
      if (spec_.sharded_optimizer && !spec_.sharded_weights && step_.group_size(group) > 1 &&
          (group == kDataParallelGroup || sparse)) {
        writer_.communicate(
            {.op = Op::gather_weights, .pass = Pass::update, .layer = layer, .after = {updated}},
            Stream::reduce, Collective::all_gather, group);
      }
    }
  }

  const PipelineSpec& spec_;
  StepSpec step_;
  std::vector<int> bounds_;
  StepWriter writer_;
  IncomingMessages incoming_;
  StageTasks tasks_;
  Recording recording_;
  TaskId begin_ = 0;           // of the segment being recorded
  std::vector<TaskId> order_;  // in which the tasks stand in the end
  std::map<std::pair<int, int>, TaskId>
      unread_;  // by virtual stage and micro-batch: a receive's id + 1, or 0
  std::map<std::pair<int, Op>, int> added_;
  std::vector<TaskId> reduced_;
};

void check(const PipelineSpec& spec) {
  const std::string problem = problem_of(spec.shape);
  require(problem.empty(), "{}", problem);
  const int parts = parts_of(spec.shape);
  const int items = spec.items();
  require(
      items >= parts,
      "a model of {} layers, embedding and head cannot be cut into {} parts: take at most {} stages times "
      "virtual stages",
      spec.step.layers(), parts, items);
  require(spec.step.groups.size() == kPipelineGroup + 1,
          "a rank in a pipeline has {} groups, not {}: world, ep, expert_dp, ep_node, dp and pp",
          kPipelineGroup + 1, spec.step.groups.size());
  require(static_cast<int>(spec.step.group_size(kPipelineGroup)) == spec.shape.stages,
          "the pipeline group has {} ranks, but there are {} stages", spec.step.group_size(kPipelineGroup),
          spec.shape.stages);
  require(spec.mtp_layers >= 0 && spec.mtp_layers <= spec.step.layers(),
          "{} layers of multi-token prediction among {} layers", spec.mtp_layers, spec.step.layers());
  require(
      !spec.step.batch_aux_loss || parts == 1,
      "an auxiliary loss over the whole batch needs all layers of the model on one stage, not {} parts: take "
      "one over each sequence",
      parts);
  require(spec.recompute_every >= 1, "one of {} layers cannot be recomputed: take at least 1",
          spec.recompute_every);
  require(spec.shape.kind != PipelineKind::dualpipe || !(spec.sharded_gradients || spec.sharded_weights),
          "dualpipe cannot shard gradients or weights (ZeRO 2 and 3): its copies of a part take their "
          "micro-batches in different orders; shard the optimizer only (ZeRO 1)");
  require(spec.recompute != LayerRecompute::full || spec.step.ep_plan.recompute == MoeRecompute::none,
          "layers that are computed again as a whole cannot have their experts computed again besides: set "
          "one of "
          "the two");
  if (!spec.bounds.empty()) {
    const bool rising = std::ranges::adjacent_find(spec.bounds, std::greater_equal<>()) == spec.bounds.end();
    require(static_cast<int>(spec.bounds.size()) == parts + 1 && spec.bounds.front() == 0 &&
                spec.bounds.back() == items && rising,
            "the bounds of {} parts are {} rising numbers from 0 to {}: items are the embedding, {} layers "
            "and the "
            "head",
            parts, parts + 1, items, spec.step.layers());
  }
}

}  // namespace

std::string_view name_of(LayerRecompute recompute) {
  switch (recompute) {
    case LayerRecompute::none:
      return "none";
    case LayerRecompute::attention:
      return "attention";
    case LayerRecompute::full:
      return "full";
  }
  return "?";
}

std::vector<int> even_bounds(int items, int parts) {
  std::vector<int> bounds;
  for (std::int64_t part = 0; part <= parts; ++part) {
    bounds.push_back(static_cast<int>(part * items / parts));
  }
  return bounds;
}

Schedule build_pipeline_step(const PipelineSpec& spec) {
  check(spec);
  return PipelineBuilder(spec).build();
}

}  // namespace expedite::schedule
