// A thread that the system lets run before others.
#pragma once

#include <sched.h>

namespace expedite {

/// While it lives, the calling thread runs as soon as it can (SCHED_FIFO, lowest priority of a real-time
/// thread), if the system allows that: Linux asks for CAP_SYS_NICE or RLIMIT_RTPRIO. Otherwise nothing
/// changes. For threads that run for microseconds and sleep, and that others wait for; threads that they
/// start inherit it.
///
/// A raised nice value would not do: a fair scheduler lets a thread that has just run wait for one that has
/// slept, which is what compute does when communication is waited for.
class UrgentThread {
 public:
  UrgentThread();
  /// On the thread that made it.
  ~UrgentThread();
  UrgentThread(const UrgentThread&) = delete;
  UrgentThread& operator=(const UrgentThread&) = delete;

  [[nodiscard]] bool raised() const { return raised_; }

 private:
  int policy_;
  sched_param before_{};
  bool raised_ = false;
};

}  // namespace expedite
