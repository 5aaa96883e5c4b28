#include "expedite/comm/metadata_gather.h"

#include <limits>

#include "expedite/base/error.h"
#include "expedite/comm/environment.h"

namespace expedite::comm {

MetadataGather::MetadataGather(const Communicator& communicator, std::span<const std::int64_t> mine,
                               std::span<std::int64_t> all)
    : mine_(mine.begin(), mine.end()),
      bytes_(static_cast<std::int64_t>(mine.size_bytes()) * (communicator.size() - 1)) {
  const std::string where = "the metadata of group " + communicator.name();
  require(all.size() == mine.size() * static_cast<std::size_t>(communicator.size()) &&
              mine.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
          "{}: {} values of each of {} ranks do not fill {}", where, mine.size(), communicator.size(),
          all.size());
  const int count = static_cast<int>(mine.size());
  MPI_Request handle = MPI_REQUEST_NULL;
  check(MPI_Iallgather(mine_.data(), count, MPI_INT64_T, all.data(), count, MPI_INT64_T,
                       communicator.handle(), &handle),
        "MPI_Iallgather", where);
  request_ = Request(handle, where);
}

}  // namespace expedite::comm
