#include "expedite/comm/block_gather.h"

#include <algorithm>
#include <limits>

#include "expedite/base/error.h"
#include "expedite/comm/environment.h"

namespace expedite::comm {
namespace {

constexpr int kGatherTag = 3;

}  // namespace

BlockGather::BlockGather(const Communicator& communicator, std::span<const std::byte> mine)
    : communicator_(communicator.handle()),
      where_("the metadata of group " + communicator.name()),
      blocks_(static_cast<std::size_t>(communicator.size())) {
  require(mine.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
          "{}: {} bytes, where MPI counts to {}; use a smaller micro-batch", where_, mine.size(),
          std::numeric_limits<int>::max());
  std::vector<std::byte>& block = blocks_[static_cast<std::size_t>(communicator.rank())];
  block.assign(mine.begin(), mine.end());
  for (int step = 1; step < communicator.size(); ++step) {  // each rank starts with another peer
    const int peer = (communicator.rank() + step) % communicator.size();
    missing_.push_back(peer);
    MPI_Request handle = MPI_REQUEST_NULL;
    check(MPI_Isend(block.data(), static_cast<int>(block.size()), MPI_BYTE, peer, kGatherTag, communicator_,
                    &handle),
          "MPI_Isend", where_);
    requests_.emplace_back(handle, where_);
    bytes_ += static_cast<std::int64_t>(block.size());
  }
}

// Messages of one rank arrive in the order of its gathers, so a later gather's block is never taken for this.
void BlockGather::receive_what_arrived() {
  std::erase_if(missing_, [this](int peer) {
    int arrived = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(peer, kGatherTag, communicator_, &arrived, &message, &status), "MPI_Improbe", where_);
    if (arrived == 0) {
      return false;
    }
    int size = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count", where_);
    std::vector<std::byte>& block = blocks_[static_cast<std::size_t>(peer)];
    block.resize(static_cast<std::size_t>(size));
    MPI_Request handle = MPI_REQUEST_NULL;
    check(MPI_Imrecv(block.data(), size, MPI_BYTE, &message, &handle), "MPI_Imrecv", where_);
    requests_.emplace_back(handle, where_);
    return true;
  });
}

bool BlockGather::test() {
  receive_what_arrived();
  std::erase_if(requests_, [](Request& request) { return request.test(); });
  return missing_.empty() && requests_.empty();
}

void BlockGather::wait() {
  Backoff backoff;
  while (!test()) {
    backoff.sleep();
  }
}

}  // namespace expedite::comm
