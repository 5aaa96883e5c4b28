#include "expedite/schedule/stage_messages.h"

namespace expedite::schedule {
namespace {

bool is_gradient(const Action& action) {
  return action.phase != Phase::forward;
}

/// Whether activations of `action` come from lower stages, or gradients from higher ones.
bool runs_up(const PipelineShape& shape, const Action& action) {
  return is_gradient(action) == runs_down(shape, action.virtual_stage);
}

}  // namespace

std::optional<Output> output_of(const PipelineShape& shape, int stage, const Action& action) {
  const int part = part_at(shape, stage, action.virtual_stage) + (is_gradient(action) ? -1 : 1);
  if (shape.stages == 1 || action.phase == Phase::weight_grad || part < 0 || part == parts_of(shape)) {
    return std::nullopt;
  }
  return Output{{is_gradient(action), part, action.micro_batch},
                runs_up(shape, action) ? Stream::send_next : Stream::send_previous};
}

std::optional<Output> input_of(const PipelineShape& shape, int stage, const Action& action) {
  const int part = part_at(shape, stage, action.virtual_stage);
  const int end = is_gradient(action) ? parts_of(shape) - 1 : 0;
  if (shape.stages == 1 || action.phase == Phase::weight_grad || part == end) {
    return std::nullopt;
  }
  return Output{{is_gradient(action), part, action.micro_batch},
                runs_up(shape, action) ? Stream::receive_previous : Stream::receive_next};
}

int neighbour(const PipelineShape& shape, int stage, Stream stream) {
  const bool next = stream == Stream::send_next || stream == Stream::receive_next;
  return (stage + (next ? 1 : shape.stages - 1)) % shape.stages;
}

IncomingMessages::IncomingMessages(const PipelineShape& shape, int stage) {
  for (const Stream sent_on : {Stream::send_next, Stream::send_previous}) {
    const Stream arrival = arrival_of(sent_on);
    Lane& lane = lanes_[arrival == Stream::receive_previous ? 0 : 1];
    const int sender = neighbour(shape, stage, arrival);
    for (const Action& action : stage_order(shape, sender)) {
      const auto output = output_of(shape, sender, action);
      if (output && output->stream == sent_on) {
        lane.index.emplace(output->message, lane.messages.size());
        lane.messages.push_back(output->message);
      }
    }
  }
}

}  // namespace expedite::schedule
