// Small collectives for set-up, checkpoints and reports: they return when they are done, sleeping rather than
// spinning meanwhile. Inside a training step use the non-blocking row_exchange.h, metadata_gather.h and
// reduce.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "expedite/comm/communicator.h"

namespace expedite::comm {

enum class ReduceOp : std::uint8_t { sum, min, max };

void barrier(const Communicator& communicator);

/// Element by element over all ranks, in place. Counts must be equal on all ranks and below 2^31.
void all_reduce(const Communicator& communicator, std::span<std::int64_t> values, ReduceOp op);
void all_reduce(const Communicator& communicator, std::span<double> values, ReduceOp op);
/// The reduction of one value; T is std::int64_t or double.
template <typename T>
[[nodiscard]] T all_reduce(const Communicator& communicator, T value, ReduceOp op) {
  all_reduce(communicator, std::span<T>(&value, 1), op);
  return value;
}

/// Every rank's `mine`, by rank. `mine` must have the same size on all ranks, and all.size() == size *
/// mine.size().
void all_gather_bytes(const Communicator& communicator, std::span<const std::byte> mine,
                      std::span<std::byte> all);
template <typename T>
requires std::is_trivially_copyable_v<T>
[[nodiscard]] std::vector<T> all_gather(const Communicator& communicator, const T& value) {
  std::vector<T> all(static_cast<std::size_t>(communicator.size()));
  all_gather_bytes(communicator, std::as_bytes(std::span(&value, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

/// `bytes` of the root on every rank. Any size, beyond 2^31 too; all ranks know it.
void broadcast_bytes(const Communicator& communicator, std::span<std::byte> bytes, int root);
template <typename T>
requires std::is_trivially_copyable_v<T>
void broadcast(const Communicator& communicator, std::span<T> values, int root) {
  broadcast_bytes(communicator, std::as_writable_bytes(values), root);
}
/// The root's text on every rank.
[[nodiscard]] std::string broadcast_text(const Communicator& communicator, std::string text, int root);

/// On the root: what every rank gave, by rank. Elsewhere empty. Any sizes, zero and beyond 2^31 too.
[[nodiscard]] std::vector<std::vector<std::byte>> gather_bytes(const Communicator& communicator,
                                                               std::span<const std::byte> mine, int root);
[[nodiscard]] std::vector<std::string> gather_text(const Communicator& communicator, const std::string& mine,
                                                   int root);
/// As gather_bytes, on every rank.
[[nodiscard]] std::vector<std::string> all_gather_text(const Communicator& communicator,
                                                       const std::string& mine);

/// One message from one rank to another, of any size. Both know the size.
void send_bytes(const Communicator& communicator, std::span<const std::byte> bytes, int destination);
void receive_bytes(const Communicator& communicator, std::span<std::byte> bytes, int source);

}  // namespace expedite::comm
