#include "expedite/comm/collectives.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "expedite/base/error.h"
#include "expedite/comm/environment.h"
#include "expedite/comm/request.h"

namespace expedite::comm {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{256} << 20;  // one MPI call each, so that counts fit an int
constexpr int kCollectiveTag = 1;

int as_count(std::size_t size) {
  require(size <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
          "{} elements are more than one MPI call takes", size);
  return static_cast<int>(size);
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
  }
  fail("no such reduction");
}

void all_reduce_values(const Communicator& communicator, void* values, std::size_t count, MPI_Datatype type,
                       ReduceOp op) {
  MPI_Request handle = MPI_REQUEST_NULL;
  check(
      MPI_Iallreduce(MPI_IN_PLACE, values, as_count(count), type, mpi_op(op), communicator.handle(), &handle),
      "MPI_Iallreduce", communicator.name());
  Request(handle, communicator.name()).wait();
}

// Calls piece(offset, count) for consecutive pieces.
template <typename Function>
void for_each_piece(std::size_t bytes, Function piece) {
  for (std::size_t offset = 0; offset < bytes; offset += kPieceBytes) {
    piece(offset, static_cast<int>(std::min(kPieceBytes, bytes - offset)));
  }
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  std::string text(bytes.size(), '\0');
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(text.data()));
  return text;
}

}  // namespace

void barrier(const Communicator& communicator) {
  MPI_Request handle = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(communicator.handle(), &handle), "MPI_Ibarrier", communicator.name());
  Request(handle, communicator.name()).wait();
}

void all_reduce(const Communicator& communicator, std::span<std::int64_t> values, ReduceOp op) {
  all_reduce_values(communicator, values.data(), values.size(), MPI_INT64_T, op);
}

void all_reduce(const Communicator& communicator, std::span<double> values, ReduceOp op) {
  all_reduce_values(communicator, values.data(), values.size(), MPI_DOUBLE, op);
}

void all_gather_bytes(const Communicator& communicator, std::span<const std::byte> mine,
                      std::span<std::byte> all) {
  require(all.size() == mine.size() * static_cast<std::size_t>(communicator.size()),
          "group {}: an all-gather of {} bytes per rank does not fill {} bytes", communicator.name(),
          mine.size(), all.size());
  MPI_Request handle = MPI_REQUEST_NULL;
  const int count = as_count(mine.size());
  check(MPI_Iallgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, communicator.handle(),
                       &handle),
        "MPI_Iallgather", communicator.name());
  Request(handle, communicator.name()).wait();
}

void broadcast_bytes(const Communicator& communicator, std::span<std::byte> bytes, int root) {
  for_each_piece(bytes.size(), [&](std::size_t offset, int count) {
    MPI_Request handle = MPI_REQUEST_NULL;
    check(MPI_Ibcast(bytes.data() + offset, count, MPI_BYTE, root, communicator.handle(), &handle),
          "MPI_Ibcast", communicator.name());
    Request(handle, communicator.name()).wait();
  });
}

std::string broadcast_text(const Communicator& communicator, std::string text, int root) {
  std::int64_t size = static_cast<std::int64_t>(text.size());
  broadcast(communicator, std::span(&size, 1), root);
  text.resize(static_cast<std::size_t>(size));
  broadcast(communicator, std::span(text), root);
  return text;
}

void send_bytes(const Communicator& communicator, std::span<const std::byte> bytes, int destination) {
  for_each_piece(bytes.size(), [&](std::size_t offset, int count) {
    MPI_Request handle = MPI_REQUEST_NULL;
    check(MPI_Isend(bytes.data() + offset, count, MPI_BYTE, destination, kCollectiveTag,
                    communicator.handle(), &handle),
          "MPI_Isend", communicator.name());
    Request(handle, communicator.name()).wait();
  });
}

void receive_bytes(const Communicator& communicator, std::span<std::byte> bytes, int source) {
  for_each_piece(bytes.size(), [&](std::size_t offset, int count) {
    MPI_Request handle = MPI_REQUEST_NULL;
    check(MPI_Irecv(bytes.data() + offset, count, MPI_BYTE, source, kCollectiveTag, communicator.handle(),
                    &handle),
          "MPI_Irecv", communicator.name());
    Request(handle, communicator.name()).wait();
  });
}

std::vector<std::vector<std::byte>> gather_bytes(const Communicator& communicator,
                                                 std::span<const std::byte> mine, int root) {
  const std::vector<std::int64_t> sizes = all_gather(communicator, static_cast<std::int64_t>(mine.size()));
  std::vector<std::vector<std::byte>> gathered;
  if (communicator.rank() != root) {
    send_bytes(communicator, mine, root);
    return gathered;
  }
  for (int source = 0; source < communicator.size(); ++source) {
    std::vector<std::byte>& bytes = gathered.emplace_back(static_cast<std::size_t>(sizes[source]));
    if (source == root) {
      std::copy(mine.begin(), mine.end(), bytes.begin());
    } else {
      receive_bytes(communicator, bytes, source);
    }
  }
  return gathered;
}

std::vector<std::string> gather_text(const Communicator& communicator, const std::string& mine, int root) {
  std::vector<std::string> texts;
  for (const auto& bytes : gather_bytes(communicator, bytes_of(mine), root)) {
    texts.push_back(text_of(bytes));
  }
  return texts;
}

std::vector<std::string> all_gather_text(const Communicator& communicator, const std::string& mine) {
  std::vector<std::string> texts = gather_text(communicator, mine, 0);
  texts.resize(static_cast<std::size_t>(communicator.size()));
  for (std::string& text : texts) {
    text = broadcast_text(communicator, std::move(text), 0);
  }
  return texts;
}

}  // namespace expedite::comm
