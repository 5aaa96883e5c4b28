// A non-blocking MPI operation under way, and waiting for one without burning a core that others need.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "expedite/comm/mpi.h"

namespace expedite::comm {

/// Sleeps that grow from 20 us to `longest` while nothing moves, so that ranks may share cores.
class Backoff {
 public:
  explicit Backoff(std::chrono::microseconds longest = std::chrono::microseconds(200)) : longest_(longest) {}
  /// Sleeps; the next sleep is longer.
  void sleep();
  /// How long to sleep now; the next time is longer.
  [[nodiscard]] std::chrono::microseconds next();
  void reset() { sleep_ = kShortest; }

 private:
  static constexpr std::chrono::microseconds kShortest{20};
  std::chrono::microseconds longest_;
  std::chrono::microseconds sleep_ = kShortest;
};

/// What every Request::wait() calls between its looks, while this object lives: the watch over the other
/// ranks goes on where no step is running, as when a checkpoint is written. Of several, the newest is called.
/// MPI thread only.
class WaitHook {
 public:
  /// How long the wait has been, and for what. May throw: the wait then ends with that.
  using Function = std::function<void(std::chrono::steady_clock::duration waited, const std::string& where)>;

  explicit WaitHook(Function function);
  ~WaitHook();
  WaitHook(const WaitHook&) = delete;
  WaitHook& operator=(const WaitHook&) = delete;

  static void call(std::chrono::steady_clock::duration waited, const std::string& where);

 private:
  Function function_;
};

/// Owns an MPI_Request. Null, or complete after test() returned true, or under way. Destroyed under way, it
/// leaves the operation to MPI, which has no way to call a collective off: the process must then end the job.
class Request {
 public:
  Request() = default;
  Request(MPI_Request handle, std::string where) : handle_(handle), where_(std::move(where)) {}
  Request(Request&& other) noexcept;
  Request& operator=(Request&& other) noexcept;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() = default;

  /// Makes progress; true once complete (a null request is complete). Errors of the operation are thrown.
  [[nodiscard]] bool test();
  /// Tests, calls the WaitHook if there is one, and sleeps, until complete.
  void wait();
  [[nodiscard]] bool pending() const { return handle_ != MPI_REQUEST_NULL; }
  [[nodiscard]] MPI_Request* handle() { return &handle_; }

 private:
  MPI_Request handle_ = MPI_REQUEST_NULL;
  std::string where_;
};

}  // namespace expedite::comm
