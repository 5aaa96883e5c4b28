// Non-blocking sums over ranks, for gradients of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "expedite/comm/communicator.h"
#include "expedite/comm/request.h"

namespace expedite::comm {

struct SumOptions {
  std::int64_t piece_bytes = std::int64_t{4} << 20;  // one MPI call each
  int pieces_in_flight = 4;                          // so that one piece's wire hides another's additions
};

/// values[i] becomes the sum of values[i] over all ranks, in place: the same bits on every rank and, for the
/// same layout of ranks, in every run. The span has the same size on every rank and must stay until complete.
class SumReduction {
 public:
  SumReduction(const Communicator& communicator, std::span<float> values, SumOptions options = {});
  SumReduction(const Communicator& communicator, std::span<double> values, SumOptions options = {});

  [[nodiscard]] bool test();
  void wait();
  /// Of the values; what travels depends on MPI's algorithm, for a ring twice (n - 1) / n of them. 0 on one
  /// rank.
  [[nodiscard]] std::int64_t bytes() const { return elements_ * element_bytes_; }

 private:
  SumReduction(const Communicator& communicator, MPI_Datatype type, std::int64_t element_bytes,
               std::span<std::byte> values, SumOptions options);
  void start_pieces();

  MPI_Comm communicator_;
  std::string where_;
  MPI_Datatype type_;
  std::byte* data_;
  std::int64_t elements_;
  std::int64_t element_bytes_;
  std::int64_t piece_elements_;
  int pieces_in_flight_;
  std::int64_t started_ = 0;  // elements
  std::deque<Request> pieces_;
};

}  // namespace expedite::comm
