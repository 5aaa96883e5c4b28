// A thread that the system lets run before others.
#pragma once

#include <optional>

namespace expedite {

/// While it lives, the calling thread goes before others on its core, if the system allows the process to
/// raise priorities (Linux: CAP_SYS_NICE, or RLIMIT_NICE); otherwise nothing changes. For threads that run for
/// microseconds and sleep, and that others wait for. Threads that they start inherit the priority.
class UrgentThread {
 public:
  UrgentThread();
  /// On the thread that made it.
  ~UrgentThread();
  UrgentThread(const UrgentThread&) = delete;
  UrgentThread& operator=(const UrgentThread&) = delete;

  [[nodiscard]] bool raised() const { return before_.has_value(); }

 private:
  std::optional<int> before_;  // its nice value
};

}  // namespace expedite
