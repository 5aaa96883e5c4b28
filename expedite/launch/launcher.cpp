#include "expedite/launch/launcher.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "expedite/base/cores.h"
#include "expedite/base/durable_file.h"
#include "expedite/base/error.h"
#include "expedite/base/installation.h"
#include "expedite/launch/mpirun_output.h"

namespace expedite::launch {
namespace {

constexpr int kNoSignal = 0;
constexpr int kTimeIsUp = -1;
constexpr int kSignalExit = 128;  // a shell's exit status for signal n is 128 + n

std::optional<std::int64_t> number_in(const GetEnvironment& get, const char* name) {
  const auto text = get(name);
  std::int64_t value = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), value).ec != std::errc()) {
    return std::nullopt;
  }
  return value;
}

/// Slurm sets SLURM_PROCID and SLURM_NTASKS in batch and interactive shells too. Only the steps that srun
/// makes are numbered from 0; those of Slurm itself (batch, interactive, external) have the highest numbers
/// of 32 bits.
std::optional<MpiJob> detect_slurm_step(const GetEnvironment& get) {
  constexpr std::int64_t kFirstReservedStep = 0xFFFFFFF0;
  const auto step = number_in(get, "SLURM_STEP_ID");
  const auto tasks = number_in(get, "SLURM_STEP_NUM_TASKS");
  const bool of_srun = step && *step >= 0 && *step < kFirstReservedStep;
  if (!of_srun || !get("SLURM_PROCID") || !tasks || *tasks < 2) {
    return std::nullopt;
  }
  return MpiJob{"Slurm", tasks};
}

/// Blocks the signals that start_ranks() waits for, and puts everything back at the end.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGCHLD);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action = {};
      sigaction(number, nullptr, &action);
      if (action.sa_handler != SIG_IGN) {  // ignored, as by nohup: stays so
        sigaddset(&set_, number);
      }
    }
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;  // where SIGCHLD is ignored, exit statuses are lost
    sigaction(SIGCHLD, &usual, &previous_child_);
    pthread_sigmask(SIG_BLOCK, &set_, &previous_);
  }
  ~BlockedSignals() {
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
    sigaction(SIGCHLD, &previous_child_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  [[nodiscard]] const sigset_t& set() const { return set_; }
  [[nodiscard]] const sigset_t& previous() const { return previous_; }

 private:
  sigset_t set_ = {};
  sigset_t previous_ = {};
  struct sigaction previous_child_ = {};
};

/// The child's side of a fork: only calls that are safe there. Never returns; on failure sends errno to
/// `report`. Its standard error goes to `output`.
[[noreturn]] void become_mpirun(char* const* arguments, const sigset_t& mask, pid_t launcher, int report,
                                int output) {
  setpgid(0, 0);  // a terminal's Ctrl-C reaches the launcher alone
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == launcher) {  // else it died before the line above
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0) {
      pthread_sigmask(SIG_SETMASK, &mask, nullptr);
      execvp(arguments[0], arguments);
    }
    const int error = errno;
    [[maybe_unused]] const ssize_t sent = write(report, &error, sizeof error);
  }
  constexpr int kCannotExecute = 127;
  _exit(kCannotExecute);
}

[[noreturn]] void fail_to_start(const std::string& mpirun, int error) {
  if (error == ENOENT) {
    fail(
        "cannot start the ranks: {} is not installed or not in PATH. Install Open MPI (Debian: apt install "
        "openmpi-bin), or start the ranks yourself with your MPI's launcher, without --ranks",
        mpirun);
  }
  fail("cannot start the ranks: {}: {}", mpirun, std::strerror(error));
}

/// mpirun, and what it writes to standard error.
struct Child {
  pid_t pid = 0;
  Descriptor output;
};

Child start(const std::vector<std::string>& command, const sigset_t& mask) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));  // execvp's type; it does not write to them
  }
  arguments.push_back(nullptr);
  std::array<int, 2> ends = {};
  require(pipe2(ends.data(), O_CLOEXEC) == 0, "cannot start {}: {}", command[0], std::strerror(errno));
  const Descriptor from_child(ends[0]);
  Descriptor to_parent(ends[1]);
  std::array<int, 2> output = {};
  require(pipe2(output.data(), O_CLOEXEC) == 0, "cannot start {}: {}", command[0], std::strerror(errno));
  Descriptor messages(output[0]);
  Descriptor to_messages(output[1]);
  fcntl(messages.number(), F_SETFL, O_NONBLOCK);
  const pid_t launcher = getpid();
  const pid_t child = fork();
  require(child >= 0, "cannot start {}: {}", command[0], std::strerror(errno));
  if (child == 0) {
    become_mpirun(arguments.data(), mask, launcher, to_parent.number(), to_messages.number());
  }
  to_parent.close();
  to_messages.close();
  int error = 0;
  if (read(from_child.number(), &error, sizeof error) == sizeof error) {  // else closed by a successful exec
    waitpid(child, nullptr, 0);
    fail_to_start(command[0], error);
  }
  return {child, std::move(messages)};
}

/// Hands on what can be read now. False at the end of the stream.
bool hand_on(const Descriptor& from, MpirunOutput& output) {
  std::array<char, 4096> piece;
  while (true) {
    const ssize_t size = read(from.number(), piece.data(), piece.size());
    if (size <= 0) {
      return size < 0 && (errno == EAGAIN || errno == EINTR);
    }
    output.add({piece.data(), static_cast<std::size_t>(size)});
  }
}

/// The next of `signals`, kTimeIsUp after `limit_ms` (-1: none), or kNoSignal. Meanwhile hands on what the
/// child writes.
int next_signal(const Descriptor& signals, Child& child, MpirunOutput& output, int limit_ms) {
  std::array<pollfd, 2> watched = {
      {{.fd = signals.number(), .events = POLLIN}, {.fd = child.output.number(), .events = POLLIN}}};
  const int ready = poll(watched.data(), watched.size(), limit_ms);
  if (ready > 0 && watched[1].revents != 0 && !hand_on(child.output, output)) {
    child.output.close();  // poll() passes over what is closed
  }
  signalfd_siginfo info = {};
  if (ready > 0 && watched[0].revents != 0 &&
      read(signals.number(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    return static_cast<int>(info.ssi_signo);
  }
  return ready == 0 ? kTimeIsUp : kNoSignal;
}

/// Waits for the child, passing on signals as start_ranks() says.
int supervise(Child& child, const sigset_t& set, MpirunOutput& output) {
  using Clock = std::chrono::steady_clock;
  const Descriptor signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  require(signals.number() >= 0, "cannot wait for signals: {}", std::strerror(errno));
  std::optional<std::chrono::seconds> repeat;  // since a stop was asked for: how long to wait to ask again
  Clock::time_point due;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now()).count();
    const int number =
        next_signal(signals, child, output, repeat ? static_cast<int>(std::max<std::int64_t>(left, 0)) : -1);
    if (number == kTimeIsUp) {
      kill(child.pid, SIGUSR1);
      repeat = 2 * *repeat;
      due = Clock::now() + *repeat;
    } else if (number == SIGINT || number == SIGTERM || number == SIGHUP) {
      kill(child.pid, repeat ? SIGTERM : SIGUSR1);
      if (!repeat) {
        repeat = std::chrono::seconds(1);
        due = Clock::now() + *repeat;
      }
      continue;
    }
    int status = 0;
    const pid_t ended = waitpid(child.pid, &status, WNOHANG);
    require(ended >= 0, "lost sight of mpirun (process {}): {}", child.pid, std::strerror(errno));
    if (ended == child.pid) {
      // A rank that outlives mpirun may hold the other end: what is there now is all.
      static_cast<void>(child.output.number() >= 0 && hand_on(child.output, output));
      output.finish();
      return WIFSIGNALED(status) ? kSignalExit + WTERMSIG(status) : WEXITSTATUS(status);
    }
  }
}

void print_line(std::string_view line) {
  fmt::print(stderr, "{}\n", line);
}

/// Hardware that Open MPI looks for and this machine does not have is not worth a message; the user may say
/// otherwise.
void quiet_open_mpi() {
  setenv("OMPI_MCA_btl_base_warn_component_unused", "0", 0);
  setenv("OMPI_MCA_hwloc_base_mem_bind_failure_action", "silent", 0);
}

}  // namespace

std::optional<MpiJob> detect_mpi_job(const GetEnvironment& get) {
  if (get("OMPI_COMM_WORLD_SIZE")) {
    return MpiJob{"Open MPI", number_in(get, "OMPI_COMM_WORLD_SIZE")};
  }
  if (get("PMI_RANK")) {
    return MpiJob{"PMI", number_in(get, "PMI_SIZE")};
  }
  if (get("PMIX_RANK")) {
    const auto tasks = number_in(get, "SLURM_STEP_NUM_TASKS");
    return MpiJob{tasks ? "Slurm" : "PMIx", tasks};
  }
  return detect_slurm_step(get);
}

std::optional<MpiJob> detect_mpi_job() {
  return detect_mpi_job([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

std::vector<std::string> mpirun_command(const LaunchOptions& options, const std::string& program,
                                        std::int64_t cores, bool root) {
  std::vector<std::string> command = {options.mpirun, "-n", std::to_string(options.ranks)};
  if (options.ranks > cores) {
    command.emplace_back("--oversubscribe");
  }
  // Ranks place their own threads, and give up the core where they wait.
  command.insert(command.end(), {"--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"});
  if (root) {
    command.emplace_back("--allow-run-as-root");
  }
  command.push_back(program);
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  return command;
}

int start_ranks(const LaunchOptions& options) {
  require(options.ranks >= 1 && options.ranks <= kMostRanks, "--ranks {}: expected 1 to {}", options.ranks,
          kMostRanks);
  const auto command =
      mpirun_command(options, options.program.empty() ? this_program().string() : options.program,
                     count_cores().machine, geteuid() == 0);
  quiet_open_mpi();
  const BlockedSignals blocked;
  Child child = start(command, blocked.previous());
  MpirunOutput output(print_line);
  return supervise(child, blocked.set(), output);
}

}  // namespace expedite::launch
