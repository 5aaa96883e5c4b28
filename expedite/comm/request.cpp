#include "expedite/comm/request.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "expedite/comm/environment.h"

namespace expedite::comm {

std::chrono::microseconds Backoff::next() {
  const auto now = sleep_;
  sleep_ = std::min(sleep_ * 3 / 2, longest_);
  return std::min(now, longest_);
}

void Backoff::sleep() {
  std::this_thread::sleep_for(next());
}

Request::Request(Request&& other) noexcept
    : handle_(std::exchange(other.handle_, MPI_REQUEST_NULL)), where_(std::move(other.where_)) {}

Request& Request::operator=(Request&& other) noexcept {
  handle_ = std::exchange(other.handle_, MPI_REQUEST_NULL);
  where_ = std::move(other.where_);
  return *this;
}

bool Request::test() {
  if (handle_ == MPI_REQUEST_NULL) {
    return true;
  }
  int complete = 0;
  check(MPI_Test(&handle_, &complete, MPI_STATUS_IGNORE), "MPI_Test", where_);
  return complete != 0;
}

void Request::wait() {
  Backoff backoff;
  while (!test()) {
    backoff.sleep();
  }
}

}  // namespace expedite::comm
