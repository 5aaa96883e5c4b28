#include "expedite/comm/row_exchange.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "expedite/base/error.h"
#include "expedite/comm/environment.h"
#include "expedite/comm/paced_sends.h"
#include "expedite/comm/request.h"

namespace expedite::comm {
namespace {

constexpr int kFirstRowTag = 16;  // plus the channel

/// `bytes` bytes as one MPI element.
class RowType {
 public:
  RowType(std::int64_t bytes, const std::string& where) {
    require(bytes <= std::numeric_limits<int>::max(), "{}: a row of {} bytes is more than MPI takes", where,
            bytes);
    check(MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &type_), "MPI_Type_contiguous", where);
    check(MPI_Type_commit(&type_), "MPI_Type_commit", where);
  }
  RowType(const RowType&) = delete;
  RowType& operator=(const RowType&) = delete;
  // MPI keeps the type until the operations that use it are complete.
  ~RowType() { MPI_Type_free(&type_); }

  [[nodiscard]] MPI_Datatype handle() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// Both sides of a message between nodes cut it alike: visit(offset, bytes) of each piece.
template <typename Visit>
void for_each_row_piece(std::int64_t bytes, std::int64_t row_bytes, const Visit& visit) {
  const std::int64_t piece = std::max(PacedSends::kPieceBytes / row_bytes, std::int64_t{1}) * row_bytes;
  for (std::int64_t begin = 0; begin < bytes; begin += piece) {
    visit(begin, static_cast<int>(std::min(piece, bytes - begin)));
  }
}

}  // namespace

RowLayout row_layout(std::span<const std::int64_t> rows, std::int64_t row_bytes) {
  require(row_bytes >= 0, "a row of {} bytes", row_bytes);
  constexpr std::int64_t kMostRows = std::numeric_limits<int>::max();
  RowLayout layout;
  layout.counts.reserve(rows.size());
  layout.byte_offsets.reserve(rows.size());
  for (std::size_t peer = 0; peer < rows.size(); ++peer) {
    require(rows[peer] >= 0, "{} rows for peer {}", rows[peer], peer);
    // Compared without adding, which could overflow.
    require(rows[peer] <= kMostRows - layout.rows,
            "an exchange of {} and more rows, where MPI counts to {}; use a smaller micro-batch or chunks",
            std::max(rows[peer], layout.rows), kMostRows);
    require(
        row_bytes == 0 || layout.rows + rows[peer] <= std::numeric_limits<std::int64_t>::max() / row_bytes,
        "{} rows of {} bytes are more than memory can address", layout.rows + rows[peer], row_bytes);
    layout.counts.push_back(static_cast<int>(rows[peer]));
    layout.byte_offsets.push_back(layout.rows * row_bytes);
    layout.rows += rows[peer];
  }
  layout.bytes = layout.rows * row_bytes;
  return layout;
}

struct RowExchange::State {
  std::string where;
  std::vector<MPI_Request> requests;
  std::optional<PacedSends> paced;  // to other nodes
};

// Sends and receives rather than MPI_Ialltoallv: peers without rows cost nothing, offsets are 64-bit pointers
// rather than int displacements, and rows that stay on this rank are copied once rather than packed.
RowExchange::RowExchange(const Communicator& communicator, const RowExchangeArgs& args)
    : state_(std::make_unique<State>()) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  state_->where = "the row exchange of group " + communicator.name();
  require(args.src_rows.size() == ranks && args.dst_rows.size() == ranks,
          "{}: {} counts to send and {} to receive for {} ranks", state_->where, args.src_rows.size(),
          args.dst_rows.size(), ranks);
  require(args.node.empty() || args.node.size() == ranks, "{}: the nodes of {} ranks for {}", state_->where,
          args.node.size(), ranks);
  const RowLayout src = row_layout(args.src_rows, args.row_bytes);
  const RowLayout dst = row_layout(args.dst_rows, args.row_bytes);
  const auto self = static_cast<std::size_t>(communicator.rank());
  require(src.counts[self] == dst.counts[self], "{}: rank {} sends itself {} rows but expects {}",
          state_->where, self, src.counts[self], dst.counts[self]);
  if (args.row_bytes == 0) {
    return;
  }
  const auto* src_data = static_cast<const std::byte*>(args.src);
  auto* dst_data = static_cast<std::byte*>(args.dst);
  const RowType type(args.row_bytes, state_->where);
  const int tag = kFirstRowTag + args.channel;
  const auto in_another_node = [&](std::size_t peer) {
    return !args.node.empty() && args.node[peer] != args.node[self];
  };
  const auto receive = [&](std::byte* to, int count, MPI_Datatype element, std::size_t peer) {
    check(MPI_Irecv(to, count, element, static_cast<int>(peer), tag, communicator.handle(),
                    &state_->requests.emplace_back(MPI_REQUEST_NULL)),
          "MPI_Irecv", state_->where);
  };
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t peer = (self + ranks - step) % ranks;
    std::byte* const to = dst_data + dst.byte_offsets[peer];
    if (in_another_node(peer)) {
      for_each_row_piece(
          dst.counts[peer] * args.row_bytes, args.row_bytes,
          [&](std::int64_t offset, int bytes) { receive(to + offset, bytes, MPI_BYTE, peer); });
    } else if (dst.counts[peer] > 0) {
      receive(to, dst.counts[peer], type.handle(), peer);
    }
  }
  state_->paced.emplace(communicator.handle(), tag, state_->where);
  for (std::size_t step = 1; step < ranks; ++step) {  // each rank starts with another peer
    const std::size_t peer = (self + step) % ranks;
    const std::byte* const from = src_data + src.byte_offsets[peer];
    const std::int64_t bytes = src.counts[peer] * args.row_bytes;
    (in_another_node(peer) ? traffic_.inter_node : traffic_.intra_node) += bytes;
    if (in_another_node(peer)) {
      for_each_row_piece(bytes, args.row_bytes, [&](std::int64_t offset, int length) {
        state_->paced->add(from + offset, length, static_cast<int>(peer));
      });
    } else if (src.counts[peer] > 0) {
      check(MPI_Isend(from, src.counts[peer], type.handle(), static_cast<int>(peer), tag,
                      communicator.handle(), &state_->requests.emplace_back(MPI_REQUEST_NULL)),
            "MPI_Isend", state_->where);
    }
  }
  static_cast<void>(state_->paced->advance());
  if (src.counts[self] > 0) {
    std::memcpy(dst_data + dst.byte_offsets[self], src_data + src.byte_offsets[self],
                static_cast<std::size_t>(src.counts[self] * args.row_bytes));
  }
}

RowExchange::RowExchange(RowExchange&&) noexcept = default;
RowExchange& RowExchange::operator=(RowExchange&&) noexcept = default;
RowExchange::~RowExchange() = default;

bool RowExchange::test() {
  const bool sent = !state_->paced || state_->paced->advance();
  int complete = 0;
  check(MPI_Testall(static_cast<int>(state_->requests.size()), state_->requests.data(), &complete,
                    MPI_STATUSES_IGNORE),
        "MPI_Testall", state_->where);
  return sent && complete != 0;
}

void RowExchange::wait() {
  Backoff backoff;
  while (!test()) {
    backoff.sleep();
  }
}

}  // namespace expedite::comm
