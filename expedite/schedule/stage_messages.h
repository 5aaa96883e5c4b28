// Which messages a pipeline stage sends and receives, and in which order.
#pragma once

#include <array>
#include <compare>
#include <map>
#include <optional>
#include <vector>

#include "expedite/schedule/pipeline_order.h"
#include "expedite/schedule/schedule.h"

namespace expedite::schedule {

/// Activations or their gradient for one part of the model.
struct Message {
  bool gradient = false;
  int part = 0;  // that it is for
  int micro_batch = 0;

  auto operator<=>(const Message&) const = default;
};

struct Output {
  Message message;
  Stream stream = Stream::send_next;
};

/// What `action` of a stage sends when it is done; nothing at the ends of the model, nor where the next part
/// is on the same stage.
[[nodiscard]] std::optional<Output> output_of(const PipelineShape& shape, int stage, const Action& action);
/// What it must have received before; `stream` is where that arrives.
[[nodiscard]] std::optional<Output> input_of(const PipelineShape& shape, int stage, const Action& action);

/// The other end's stage: of send_next and receive_next the one after `stage`, in a ring.
[[nodiscard]] int neighbour(const PipelineShape& shape, int stage, Stream stream);

/// The messages that arrive on a stage's two receiving streams. They are received in the order in which their
/// sender sends them, so that no message ever waits for one behind it.
class IncomingMessages {
 public:
  IncomingMessages(const PipelineShape& shape, int stage);

  /// Calls receive(message) -> TaskId for those before `wanted` that have not been received, and for it.
  /// Returns the task that received it.
  template <typename Receive>
  TaskId receive_up_to(const Output& wanted, const Receive& receive) {
    Lane& lane = lanes_[wanted.stream == Stream::receive_previous ? 0 : 1];
    const std::size_t index = lane.index.at(wanted.message);
    while (lane.received.size() <= index) {
      lane.received.push_back(receive(lane.messages[lane.received.size()]));
    }
    return lane.received[index];
  }

 private:
  struct Lane {
    std::vector<Message> messages;
    std::map<Message, std::size_t> index;
    std::vector<TaskId> received;
  };
  std::array<Lane, 2> lanes_;  // receive_previous, receive_next
};

}  // namespace expedite::schedule
