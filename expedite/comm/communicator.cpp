#include "expedite/comm/communicator.h"

#include <utility>

#include "expedite/comm/environment.h"
#include "expedite/comm/request.h"

namespace expedite::comm {
namespace {

// Making a communicator waits for all ranks without sleeping; when they have met here first, it is short.
void meet(MPI_Comm communicator, const std::string& name) {
  MPI_Request handle = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(communicator, &handle), "MPI_Ibarrier", name);
  Request(handle, name).wait();
}

}  // namespace

Communicator::Communicator(MPI_Comm handle, std::string name) : handle_(handle), name_(std::move(name)) {
  check(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", name_);
  check(MPI_Comm_rank(handle_, &rank_), "MPI_Comm_rank", name_);
  check(MPI_Comm_size(handle_, &size_), "MPI_Comm_size", name_);
}

Communicator::Communicator(Communicator&& other) noexcept
    : handle_(std::exchange(other.handle_, MPI_COMM_NULL)),
      rank_(other.rank_),
      size_(other.size_),
      name_(std::move(other.name_)) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(rank_, other.rank_);
  std::swap(size_, other.size_);
  std::swap(name_, other.name_);
  return *this;
}

Communicator::~Communicator() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (handle_ != MPI_COMM_NULL && finalized == 0) {
    MPI_Comm_free(&handle_);
  }
}

Communicator Communicator::world() {
  meet(MPI_COMM_WORLD, "world");
  MPI_Comm handle = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &handle), "MPI_Comm_dup", "world");
  return {handle, "world"};
}

Communicator Communicator::duplicate(std::string name) const {
  meet(handle_, name);
  MPI_Comm handle = MPI_COMM_NULL;
  check(MPI_Comm_dup(handle_, &handle), "MPI_Comm_dup", name);
  return {handle, std::move(name)};
}

Communicator Communicator::split(int color, int key, std::string name) const {
  meet(handle_, name);
  MPI_Comm handle = MPI_COMM_NULL;
  check(MPI_Comm_split(handle_, color, key, &handle), "MPI_Comm_split", name);
  return {handle, std::move(name)};
}

Communicator Communicator::split_by_node(std::string name) const {
  meet(handle_, name);
  MPI_Comm handle = MPI_COMM_NULL;
  check(MPI_Comm_split_type(handle_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &handle),
        "MPI_Comm_split_type", name);
  return {handle, std::move(name)};
}

}  // namespace expedite::comm
