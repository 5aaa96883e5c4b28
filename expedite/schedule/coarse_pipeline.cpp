#include "expedite/schedule/coarse_pipeline.h"

#include <numeric>
#include <utility>

#include "expedite/base/error.h"
#include "expedite/schedule/role.h"
#include "expedite/schedule/stage_messages.h"

namespace expedite::schedule {
namespace {

class CoarseBuilder {
 public:
  CoarseBuilder(const CoarsePipeline& pipeline, int stage)
      : pipeline_(pipeline), shape_(pipeline.shape), stage_(stage), incoming_(shape_, stage) {
    schedule_.rank = stage;
    std::vector<int> ranks(static_cast<std::size_t>(shape_.stages));
    std::iota(ranks.begin(), ranks.end(), 0);
    schedule_.groups = {{"pp", std::move(ranks)}};
    kept_.resize(buffer_index(virtual_stages_of(shape_), 0, 0));
  }

  Schedule build() {
    const std::vector<Action> order = stage_order(shape_, stage_);
    for (auto action = order.begin(); action != order.end(); ++action) {
      if (!action->paired) {
        run({&*action, 1});
      } else {
        run({&*action, 2});
        ++action;
      }
    }
    return std::move(schedule_);
  }

 private:
  /// One action, or a pair.
  void run(std::span<const Action> actions) {
    std::vector<TaskId> after;
    for (const Action& action : actions) {
      if (const auto input = input_of(shape_, stage_, action)) {
        after.push_back(incoming_.receive_up_to(*input, [&](const Message& message) {
          return communicate(message, Collective::receive, input->stream, {});
        }));
      }
    }
    for (const Action& action : actions) {
      if (action.phase == Phase::forward) {
        compute(action, Pass::forward, std::exchange(after, {}));
      }
      if (action.phase == Phase::backward || action.phase == Phase::input_grad) {
        compute(action, Pass::input_grad, std::exchange(after, {}));
      }
      if (action.phase == Phase::backward || action.phase == Phase::weight_grad) {
        compute(action, Pass::weight_grad, {});
      }
    }
    const auto done = static_cast<TaskId>(schedule_.tasks.size()) - 1;
    for (const Action& action : actions) {
      if (const auto output = output_of(shape_, stage_, action)) {
        communicate(output->message, Collective::send, output->stream, {done});
      }
    }
  }

  void compute(const Action& action, Pass pass, std::vector<TaskId> after) {
    Task task{.op = action.paired ? Op::paired_stage : Op::stage,
              .pass = pass,
              .micro_batch = action.micro_batch,
              .chunk = action.virtual_stage,
              .piece = Piece::virtual_stage,
              .after = std::move(after)};
    for (const int for_weights : {0, 1}) {
      const std::size_t index = buffer_index(action.virtual_stage, action.micro_batch, for_weights);
      if (pass == Pass::forward) {
        acquire(task, index, action, for_weights == 1);
      } else if (kept_[index] >= 0) {
        const bool last = (pass == Pass::weight_grad) == (for_weights == 1);
        if (last) {
          task.releases.push_back(kept_[index]);
        } else if (pass == Pass::input_grad) {
          task.uses.push_back(kept_[index]);
        }
      }
    }
    schedule_.tasks.push_back(std::move(task));
  }

  void acquire(Task& task, std::size_t index, const Action& action, bool for_weights) {
    const auto& bytes = for_weights ? pipeline_.kept_for_weights_bytes : pipeline_.kept_bytes;
    kept_[index] = -1;
    if (bytes.empty()) {
      return;
    }
    const Role role = for_weights ? Role::stage_inputs : Role::stage;
    kept_[index] = static_cast<BufferId>(schedule_.buffers.size());
    const auto part = static_cast<std::size_t>(part_at(shape_, stage_, action.virtual_stage));
    schedule_.buffers.push_back({.role = static_cast<std::uint8_t>(role),
                                 .category = category_of(role),
                                 .micro_batch = action.micro_batch,
                                 .chunk = action.virtual_stage,
                                 .piece = Piece::virtual_stage,
                                 .expected_bytes = bytes[part]});
    task.acquires.push_back(kept_[index]);
  }

  TaskId communicate(const Message& message, Collective collective, Stream stream,
                     std::vector<TaskId> after) {
    schedule_.tasks.push_back(
        {.op = collective == Collective::send ? Op::send : Op::receive,
         .pass = message.gradient ? Pass::input_grad : Pass::forward,
         .stream = stream,
         .micro_batch = message.micro_batch,
         .chunk = message.part,
         .piece = Piece::part,
         .after = std::move(after),
         .communication =
             Communication{.collective = collective, .group = 0, .peer = neighbour(shape_, stage_, stream)}});
    return static_cast<TaskId>(schedule_.tasks.size()) - 1;
  }

  [[nodiscard]] std::size_t buffer_index(int virtual_stage, int micro_batch, int for_weights) const {
    return 2 * (static_cast<std::size_t>(virtual_stage) * static_cast<std::size_t>(shape_.micro_batches) +
                static_cast<std::size_t>(micro_batch)) +
           static_cast<std::size_t>(for_weights);
  }

  const CoarsePipeline& pipeline_;
  const PipelineShape& shape_;
  int stage_;
  IncomingMessages incoming_;
  std::vector<BufferId> kept_;  // by virtual stage, micro-batch, and whether it is for weight gradients
  Schedule schedule_;
};

}  // namespace

Schedule build_coarse_pipeline(const CoarsePipeline& pipeline, int stage) {
  const std::string problem = problem_of(pipeline.shape);
  require(problem.empty(), "{}", problem);
  for (const auto* bytes : {&pipeline.kept_bytes, &pipeline.kept_for_weights_bytes}) {
    require(bytes->empty() || static_cast<int>(bytes->size()) == parts_of(pipeline.shape),
            "sizes for {} parts of a pipeline that has {}: give one per part, or none", bytes->size(),
            parts_of(pipeline.shape));
  }
  return CoarseBuilder(pipeline, stage).build();
}

}  // namespace expedite::schedule
