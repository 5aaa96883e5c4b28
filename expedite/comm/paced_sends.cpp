#include "expedite/comm/paced_sends.h"

#include <algorithm>
#include <functional>

#include "expedite/comm/environment.h"

namespace expedite::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAhead{4};      // what is under way passes in this time
constexpr milliseconds kMeasured{16};  // at least: a transport takes the first bytes into buffers of its own
constexpr std::int64_t kFewestPieces = 6;  // pieces, for ranks that wait for their turn on a core
constexpr milliseconds kPatience{5};       // with a peer that takes nothing

}  // namespace

bool PacedSends::advance() {
  do {
    leave_late_peer();
    while (!waiting_.empty() && bytes_in_turn_ < most_under_way()) {
      send(waiting_.front());
      waiting_.pop_front();
    }
  } while (take_what_was_sent());
  return requests_.empty();
}

bool PacedSends::take_what_was_sent() {
  done_.resize(requests_.size());
  int count = 0;
  check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(),
                     MPI_STATUSES_IGNORE),
        "MPI_Testsome", where_);
  if (count == MPI_UNDEFINED || count == 0) {
    return false;
  }
  std::sort(done_.begin(), done_.begin() + count, std::greater<>());
  for (int i = 0; i < count; ++i) {
    const auto place = done_[static_cast<std::size_t>(i)];
    const Piece& piece = under_way_[static_cast<std::size_t>(place)];
    bytes_in_turn_ -= piece.late ? 0 : piece.bytes;
    sent_bytes_ += piece.bytes;
    requests_.erase(requests_.begin() + place);
    under_way_.erase(under_way_.begin() + place);
  }
  moved_ = Clock::now();
  return true;
}

void PacedSends::leave_late_peer() {
  const auto now = Clock::now();
  if (requests_.empty() || now - moved_ < kPatience) {
    return;
  }
  const int late = under_way_.back().peer;  // whose turn it is
  const auto others = std::stable_partition(waiting_.begin(), waiting_.end(),
                                            [late](const Piece& piece) { return piece.peer != late; });
  if (others == waiting_.begin()) {
    return;
  }
  for (Piece& piece : under_way_) {
    piece.late = true;
  }
  bytes_in_turn_ = 0;
  sent_bytes_ = 0;
  begin_ = moved_ = now;
}

std::int64_t PacedSends::most_under_way() const {
  const auto elapsed = std::max<Clock::duration>(Clock::now() - begin_, kMeasured);
  const double of_elapsed = std::chrono::duration<double>(kAhead) / std::chrono::duration<double>(elapsed);
  return std::max(kFewestPieces * kPieceBytes,
                  static_cast<std::int64_t>(static_cast<double>(sent_bytes_) * of_elapsed));
}

void PacedSends::send(const Piece& piece) {
  check(MPI_Isend(piece.data, piece.bytes, MPI_BYTE, piece.peer, tag_, communicator_,
                  &requests_.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Isend", where_);
  under_way_.push_back(piece);
  bytes_in_turn_ += piece.bytes;
}

}  // namespace expedite::comm
