// The variable all-to-all of token rows, non-blocking and counted in rows, so that bytes may exceed 2^31.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "expedite/base/row_traffic.h"
#include "expedite/comm/communicator.h"

namespace expedite::comm {

/// Where each peer's rows lie in a buffer that holds them one peer after the other.
struct RowLayout {
  std::vector<int> counts;                 // rows, as MPI takes them
  std::vector<std::int64_t> byte_offsets;  // of each peer's first row
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
};

/// An Error if a count is negative, the rows of one buffer exceed 2^31 - 1, or the bytes exceed 2^63 - 1.
[[nodiscard]] RowLayout row_layout(std::span<const std::int64_t> rows, std::int64_t row_bytes);

/// One all-to-all. Counts are by rank of the communicator; both sides know them; any may be zero. Rows are
/// ordered by peer in both buffers.
struct RowExchangeArgs {
  const void* src = nullptr;
  std::span<const std::int64_t> src_rows;
  void* dst = nullptr;
  std::span<const std::int64_t> dst_rows;
  std::int64_t row_bytes = 0;
  /// Of each rank, the same on all; empty: all of one. Rows to other nodes go in pieces, a few at a time.
  std::span<const int> node = {};
  int channel = 0;  // exchanges of one communicator that are under way together differ in it
};

/// An all-to-all under way. The buffers must stay until it is complete, `src` unchanged; the spans of counts
/// only during construction. Destroyed before it is complete, it leaves messages to MPI: the process must
/// then end the job.
class RowExchange {
 public:
  /// Starts it: collective over the communicator.
  RowExchange(const Communicator& communicator, const RowExchangeArgs& args);
  RowExchange(RowExchange&&) noexcept;
  RowExchange& operator=(RowExchange&&) noexcept;
  ~RowExchange();

  /// Makes progress; true once every row has been sent and received.
  [[nodiscard]] bool test();
  void wait();
  /// Bytes sent to other ranks.
  [[nodiscard]] std::int64_t bytes() const { return traffic_.intra_node + traffic_.inter_node; }
  [[nodiscard]] const RowTraffic& rows() const { return traffic_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  RowTraffic traffic_;
};

}  // namespace expedite::comm
