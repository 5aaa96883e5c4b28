#include "expedite/train/stop_signal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "expedite/base/error.h"

namespace expedite::train {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGALRM};

/// A line that a handler may write at any moment.
struct Line {
  std::array<char, 512> text = {};
  std::size_t length = 0;

  void set(std::string_view line) {
    length = line.copy(text.data(), text.size() - 1);
    text[length++] = '\n';
  }
  void write_out() const {
    const int kept = errno;
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), length);
    errno = kept;
  }
};

/// What the handlers need. A new limit is written into the other one of two, which then takes its place.
struct Answer {
  Line line;
  unsigned limit_s = 0;
};
std::array<Answer, 2> answers;
Line too_late;
std::atomic<const Answer*> answer = nullptr;
std::atomic<bool> answers_to_all = false;  // SIGUSR1 too
std::atomic<bool> exists = false;
std::atomic<bool> over = false;
std::atomic<int> received = 0;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<const Answer*>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

std::string prefix;
std::string what;

void publish(unsigned limit_s) {
  const Answer* now = answer;
  Answer& other = now == answers.data() ? answers[1] : answers[0];
  other.limit_s = limit_s;
  const std::string most = limit_s > 0 ? fmt::format(" (within {} s)", limit_s) : "";
  other.line.set(
      fmt::format("{}stopping: {}{}; a second signal ends this at once, unsaved", prefix, what, most));
  too_late.set(
      fmt::format("{}the step did not end within {} s of the signal to stop (runtime.stop_timeout_s): "
                  "ending without saving; earlier checkpoints stay as they are",
                  prefix, limit_s));
  answer = &other;
}

void on_signal(int number) {
  if (number == SIGALRM) {
    too_late.write_out();
    _exit(1);
  }
  int none = 0;
  if (received.compare_exchange_strong(none, number)) {
    const Answer* now = answer;
    if (number != SIGUSR1 || answers_to_all) {
      now->line.write_out();
    }
    if (!over) {
      alarm(now->limit_s);
    }
  } else if (number != SIGUSR1) {
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;
    sigaction(number, &usual, nullptr);
    raise(number);  // delivered when this handler returns
  }
}

}  // namespace

void ignore_repeated_stops() {
  struct sigaction action = {};
  action.sa_handler = SIG_IGN;
  require(sigaction(SIGUSR1, &action, nullptr) == 0, "cannot ignore signal {}: {}", SIGUSR1,
          std::strerror(errno));
}

StopSignal::StopSignal(const StopOptions& options) {
  require(!exists.exchange(true), "there is a StopSignal already; a process has one");
  received = 0;
  over = false;
  answers_to_all = options.rank == 0;
  prefix = options.ranks > 1 ? fmt::format("info: [rank {}] ", options.rank) : "info: ";
  what = options.what;
  publish(0);
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
  alarm(0);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &previous_[i], nullptr);
  }
  exists = false;
}

int StopSignal::signal() const {
  return received;
}

void StopSignal::set_limit(unsigned seconds) {
  if (seconds != answer.load()->limit_s) {
    publish(seconds);
  }
  if (requested() && !over) {
    alarm(seconds);
  }
}

void StopSignal::wait_is_over() {
  over = true;
  alarm(0);
}

}  // namespace expedite::train
