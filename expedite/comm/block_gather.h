// A non-blocking all-gather of blocks of bytes, each of a size that only its owner knows beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "expedite/comm/communicator.h"
#include "expedite/comm/request.h"

namespace expedite::comm {

class BlockGather {
 public:
  /// Starts it: collective. `mine` is copied; empty is legal.
  BlockGather(const Communicator& communicator, std::span<const std::byte> mine);

  /// Makes progress; true once every rank's block is here and this rank's has been sent.
  [[nodiscard]] bool test();
  void wait();
  /// By rank, once complete.
  [[nodiscard]] const std::vector<std::vector<std::byte>>& blocks() const { return blocks_; }
  /// Bytes sent to other ranks.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  void receive_what_arrived();

  MPI_Comm communicator_;
  std::string where_;
  std::vector<std::vector<std::byte>> blocks_;
  std::vector<int> missing_;  // ranks whose block has not been announced yet
  std::deque<Request> requests_;
  std::int64_t bytes_ = 0;
};

}  // namespace expedite::comm
