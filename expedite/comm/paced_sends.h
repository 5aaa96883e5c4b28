// Sends between nodes, in pieces of which few are under way at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "expedite/comm/mpi.h"

namespace expedite::comm {

/// Messages that are all handed over at once share a link as its transport pleases: some of them first, the
/// others at half of the link's rate long after it is free, and where several nodes send to one, all of them
/// slowly. So pieces go one peer after the other, and few are under way: what passes in a few milliseconds,
/// as measured while they go. A peer that takes nothing for a while is left for the next one.
class PacedSends {
 public:
  static constexpr std::int64_t kPieceBytes = 128 * 1024;

  PacedSends(MPI_Comm communicator, int tag, std::string where)
      : communicator_(communicator), tag_(tag), where_(std::move(where)) {}

  /// Behind the earlier pieces. Of one peer they arrive in order.
  void add(const std::byte* data, int bytes, int peer) {
    waiting_.push_back({.data = data, .bytes = bytes, .peer = peer});
  }
  /// Starts what may start; true once all has been sent.
  [[nodiscard]] bool advance();

 private:
  using Clock = std::chrono::steady_clock;
  struct Piece {
    const std::byte* data = nullptr;
    int bytes = 0;
    int peer = 0;
    bool late = false;  // its peer took nothing when it was its turn
  };

  /// True if anything was.
  bool take_what_was_sent();
  void leave_late_peer();
  [[nodiscard]] std::int64_t most_under_way() const;
  void send(const Piece& piece);

  MPI_Comm communicator_;
  int tag_;
  std::string where_;
  std::deque<Piece> waiting_;
  std::vector<MPI_Request> requests_;  // of the pieces under way
  std::vector<Piece> under_way_;
  std::vector<int> done_;
  std::int64_t bytes_in_turn_ = 0;  // under way, but for late ones
  std::int64_t sent_bytes_ = 0;     // since begin_
  Clock::time_point begin_ = Clock::now();
  Clock::time_point moved_ = begin_;
};

}  // namespace expedite::comm
