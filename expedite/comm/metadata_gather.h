// A non-blocking all-gather of a few integers per rank: the counts that a dispatch needs to know beforehand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "expedite/comm/communicator.h"
#include "expedite/comm/request.h"

namespace expedite::comm {

class MetadataGather {
 public:
  /// Starts it: collective. `mine` has the same size on every rank (zero is legal) and is copied; `all` has
  /// size() times as many, by rank, and must stay until complete.
  MetadataGather(const Communicator& communicator, std::span<const std::int64_t> mine,
                 std::span<std::int64_t> all);

  [[nodiscard]] bool test() { return request_.test(); }
  void wait() { request_.wait(); }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::vector<std::int64_t> mine_;
  Request request_;
  std::int64_t bytes_ = 0;
};

}  // namespace expedite::comm
