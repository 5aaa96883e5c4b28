#include "expedite/train/stop_signal.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "expedite/base/error.h"

namespace expedite::train {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1};

std::atomic<bool> exists = false;
std::atomic<int> received = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

void on_signal(int number) {
  int none = 0;
  if (!received.compare_exchange_strong(none, number) && number == SIGINT) {
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;
    sigaction(SIGINT, &usual, nullptr);
    raise(SIGINT);  // delivered when this handler returns
  }
}

}  // namespace

void ignore_repeated_stops() {
  struct sigaction action = {};
  action.sa_handler = SIG_IGN;
  require(sigaction(SIGUSR1, &action, nullptr) == 0, "cannot ignore signal {}: {}", SIGUSR1,
          std::strerror(errno));
}

StopSignal::StopSignal() {
  require(!exists.exchange(true), "there is a StopSignal already; a process has one");
  received = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and writes of the run go on
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    if (sigaction(kSignals[i], &action, &previous_[i]) != 0) {
      exists = false;
      fail("cannot handle signal {}: {}", kSignals[i], std::strerror(errno));
    }
  }
}

StopSignal::~StopSignal() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &previous_[i], nullptr);
  }
  exists = false;
}

int StopSignal::signal() const {
  return received;
}

}  // namespace expedite::train
