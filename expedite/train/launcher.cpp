#include "expedite/train/launcher.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "expedite/base/cores.h"
#include "expedite/base/error.h"
#include "expedite/train/durable_file.h"

namespace expedite::train {
namespace {

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

/// Blocks the signals that launch() waits for, and puts everything back at the end.
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
/// `report`.
[[noreturn]] void become_mpirun(char* const* arguments, const sigset_t& mask, pid_t launcher, int report) {
  setpgid(0, 0);  // a terminal's Ctrl-C reaches the launcher alone
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == launcher) {  // else it died before the line above
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0) {
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

pid_t start(const std::vector<std::string>& command, const sigset_t& mask) {
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
  const pid_t launcher = getpid();
  const pid_t child = fork();
  require(child >= 0, "cannot start {}: {}", command[0], std::strerror(errno));
  if (child == 0) {
    become_mpirun(arguments.data(), mask, launcher, to_parent.number());
  }
  to_parent.close();
  int error = 0;
  if (read(from_child.number(), &error, sizeof error) == sizeof error) {  // else closed by a successful exec
    waitpid(child, nullptr, 0);
    fail_to_start(command[0], error);
  }
  return child;
}

/// Waits for the child, passing on signals as launch() says.
int supervise(pid_t child, const sigset_t& signals) {
  std::optional<std::int64_t> repeat_s;  // since a stop was asked for: when to ask again
  while (true) {
    const timespec limit = {.tv_sec = repeat_s.value_or(0)};
    const int number = repeat_s ? sigtimedwait(&signals, nullptr, &limit) : sigwaitinfo(&signals, nullptr);
    if (number < 0 && errno == EAGAIN) {
      kill(child, SIGUSR1);
      repeat_s = 2 * *repeat_s;
    } else if (number == SIGINT || number == SIGTERM || number == SIGHUP) {
      kill(child, repeat_s ? SIGTERM : SIGUSR1);
      repeat_s = repeat_s.value_or(1);
      continue;
    }
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    require(ended >= 0, "lost sight of mpirun (process {}): {}", child, std::strerror(errno));
    if (ended == child) {
      return WIFSIGNALED(status) ? kSignalExit + WTERMSIG(status) : WEXITSTATUS(status);
    }
  }
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

std::string this_program() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  require(!error, "cannot find this program's file through /proc/self/exe: {}", error.message());
  return program;
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

int launch(const LaunchOptions& options) {
  require(options.ranks >= 1, "--ranks {}: expected at least 1", options.ranks);
  const auto command = mpirun_command(options, options.program.empty() ? this_program() : options.program,
                                      count_cores().machine, geteuid() == 0);
  const BlockedSignals blocked;
  const pid_t child = start(command, blocked.previous());
  return supervise(child, blocked.set());
}

}  // namespace expedite::train
