#include "expedite/comm/request.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "expedite/comm/environment.h"

namespace expedite::comm {
namespace {

/// The living hooks, oldest first. Of the process, as MPI is.
std::vector<WaitHook*>& hooks() {
  static std::vector<WaitHook*> living;
  return living;
}

}  // namespace

WaitHook::WaitHook(Function function) : function_(std::move(function)) {
  hooks().push_back(this);
}

WaitHook::~WaitHook() {
  std::erase(hooks(), this);
}

void WaitHook::call(std::chrono::steady_clock::duration waited, const std::string& where) {
  if (!hooks().empty()) {
    hooks().back()->function_(waited, where);
  }
}

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
  const auto begin = std::chrono::steady_clock::now();
  Backoff backoff;
  while (!test()) {
    WaitHook::call(std::chrono::steady_clock::now() - begin, where_);
    backoff.sleep();
  }
}

}  // namespace expedite::comm
