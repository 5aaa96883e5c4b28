#include "expedite/base/urgent_thread.h"

namespace expedite {
namespace {

constexpr int kThisThread = 0;

}  // namespace

UrgentThread::UrgentThread() : policy_(sched_getscheduler(kThisThread)) {
  if (policy_ < 0 || sched_getparam(kThisThread, &before_) != 0) {
    return;
  }
  const sched_param urgent{.sched_priority = sched_get_priority_min(SCHED_FIFO)};
  const bool higher = policy_ == SCHED_FIFO || policy_ == SCHED_RR;
  raised_ = !higher && sched_setscheduler(kThisThread, SCHED_FIFO, &urgent) == 0;
}

UrgentThread::~UrgentThread() {
  if (raised_) {
    sched_setscheduler(kThisThread, policy_, &before_);
  }
}

}  // namespace expedite
