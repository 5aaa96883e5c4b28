// Ownership of MPI communicators.
#pragma once

#include <string>

#include "expedite/comm/mpi.h"

namespace expedite::comm {

/// A communicator, freed on destruction. Duplicating and splitting are collective over its ranks.
/// Non-blocking operations of one communicator must start in the same order on all its ranks: give every
/// stream its own.
class Communicator {
 public:
  /// No communicator.
  Communicator() = default;
  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  /// A duplicate of MPI_COMM_WORLD.
  [[nodiscard]] static Communicator world();
  [[nodiscard]] Communicator duplicate(std::string name) const;
  /// Ranks of equal `color` together, ordered by `key` and then by rank.
  [[nodiscard]] Communicator split(int color, int key, std::string name) const;
  /// Ranks that share memory, which is what makes a node, together.
  [[nodiscard]] Communicator split_by_node(std::string name) const;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// What error messages call it: "world", "ep".
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] MPI_Comm handle() const { return handle_; }
  [[nodiscard]] explicit operator bool() const { return handle_ != MPI_COMM_NULL; }

 private:
  Communicator(MPI_Comm handle, std::string name);

  MPI_Comm handle_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  std::string name_;
};

}  // namespace expedite::comm
