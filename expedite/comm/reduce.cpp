#include "expedite/comm/reduce.h"

#include <algorithm>
#include <limits>

#include "expedite/base/error.h"
#include "expedite/comm/environment.h"

namespace expedite::comm {
namespace {

std::int64_t elements_per_piece(const SumOptions& options, std::int64_t element_bytes) {
  require(options.piece_bytes >= element_bytes && options.pieces_in_flight > 0,
          "a sum in pieces of {} bytes, {} at a time", options.piece_bytes, options.pieces_in_flight);
  return std::min<std::int64_t>(options.piece_bytes / element_bytes, std::numeric_limits<int>::max());
}

}  // namespace

SumReduction::SumReduction(const Communicator& communicator, std::span<float> values, SumOptions options)
    : SumReduction(communicator, MPI_FLOAT, sizeof(float), std::as_writable_bytes(values), options) {}

SumReduction::SumReduction(const Communicator& communicator, std::span<double> values, SumOptions options)
    : SumReduction(communicator, MPI_DOUBLE, sizeof(double), std::as_writable_bytes(values), options) {}

SumReduction::SumReduction(const Communicator& communicator, MPI_Datatype type, std::int64_t element_bytes,
                           std::span<std::byte> values, SumOptions options)
    : communicator_(communicator.handle()),
      where_("the sum over group " + communicator.name()),
      type_(type),
      data_(values.data()),
      elements_(communicator.size() > 1 ? static_cast<std::int64_t>(values.size()) / element_bytes : 0),
      element_bytes_(element_bytes),
      piece_elements_(elements_per_piece(options, element_bytes)),
      pieces_in_flight_(options.pieces_in_flight) {
  start_pieces();
}

bool SumReduction::test() {
  // In order: of collectives that all ranks start in the same order, the first is complete first or nearly
  // so.
  while (!pieces_.empty() && pieces_.front().test()) {
    pieces_.pop_front();
  }
  start_pieces();
  return pieces_.empty();
}

void SumReduction::start_pieces() {
  while (started_ < elements_ && static_cast<int>(pieces_.size()) < pieces_in_flight_) {
    const std::int64_t count = std::min(piece_elements_, elements_ - started_);
    MPI_Request handle = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(MPI_IN_PLACE, data_ + started_ * element_bytes_, static_cast<int>(count), type_,
                         MPI_SUM, communicator_, &handle),
          "MPI_Iallreduce", where_);
    pieces_.emplace_back(handle, where_);
    started_ += count;
  }
}

void SumReduction::wait() {
  Backoff backoff;
  while (!test()) {
    backoff.sleep();
  }
}

}  // namespace expedite::comm
