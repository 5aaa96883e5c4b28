#include "expedite/base/urgent_thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace expedite {
namespace {

constexpr int kRaise = 19;  // nice values
constexpr int kHighest = -20;

bool set_nice(int value) {
  return setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), value) == 0;
}

}  // namespace

UrgentThread::UrgentThread() {
  errno = 0;
  const int nice = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  if (errno == 0 && nice > kHighest && set_nice(std::max(nice - kRaise, kHighest))) {
    before_ = nice;
  }
}

UrgentThread::~UrgentThread() {
  if (before_) {
    set_nice(*before_);
  }
}

}  // namespace expedite
