#include "expedite/launch/launcher.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <thread>

#include "expedite/base/error.h"
#include "tests/test_folder.h"

namespace expedite::launch {
namespace {

GetEnvironment from(const std::map<std::string, std::string>& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::optional<std::int64_t> ranks_of(const std::map<std::string, std::string>& variables) {
  const auto job = detect_mpi_job(from(variables));
  return job ? job->ranks.value_or(0) : std::optional<std::int64_t>();
}

TEST(DetectMpiJob, KnowsWhatStartsRanks) {
  EXPECT_EQ(ranks_of({{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "0"}}), 4);
  EXPECT_EQ(ranks_of({{"OMPI_COMM_WORLD_SIZE", "1"}}), 1);
  EXPECT_EQ(ranks_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "8"}}), 8);
  EXPECT_EQ(ranks_of({{"PMIX_RANK", "3"}}), 0);  // of unknown size
  EXPECT_EQ(ranks_of({{"PMIX_RANK", "3"}, {"SLURM_STEP_NUM_TASKS", "5"}}), 5);
  EXPECT_EQ(ranks_of({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}), 2);
}

TEST(DetectMpiJob, IsNotMisledByShellsInsideAnAllocation) {
  EXPECT_EQ(ranks_of({}), std::nullopt);
  EXPECT_EQ(ranks_of({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}),
            std::nullopt);  // sbatch
  const std::string interactive = "4294967290";
  EXPECT_EQ(ranks_of({{"SLURM_STEP_ID", interactive}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
            std::nullopt);
  EXPECT_EQ(ranks_of({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}),
            std::nullopt);  // srun --pty bash
  EXPECT_EQ(ranks_of({{"SLURM_STEP_ID", "x"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
            std::nullopt);
}

TEST(MpirunCommand, OversubscribesAndRunsAsRootOnlyWhereItMust) {
  const LaunchOptions options = {.ranks = 4, .arguments = {"train", "a b.yaml"}};
  using Words = std::vector<std::string>;
  EXPECT_EQ(mpirun_command(options, "/bin/x", 4, false),
            (Words{"mpirun", "-n", "4", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "/bin/x",
                   "train", "a b.yaml"}));
  EXPECT_EQ(mpirun_command(options, "/bin/x", 2, true),
            (Words{"mpirun", "-n", "4", "--oversubscribe", "--bind-to", "none", "--mca",
                   "mpi_yield_when_idle", "1", "--allow-run-as-root", "/bin/x", "train", "a b.yaml"}));
}

/// Waits, for as long as a loaded machine may need, until `condition` holds.
bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// Tests with a shell script in mpirun's place.
class LaunchTest : public testing::Test {
 protected:
  LaunchOptions with_script(const std::string& script) {
    const auto file = folder_.write("mpirun", "#!/bin/sh\ncd " + folder_.path().string() + "\n" + script);
    EXPECT_EQ(chmod(file.c_str(), 0700), 0);
    return {.ranks = 2, .arguments = {"train", "a b"}, .mpirun = file};
  }

  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }
  [[nodiscard]] bool appears(const std::string& name) const {
    return eventually([&] { return std::filesystem::exists(file(name)); });
  }

  /// A launcher in a process of its own, once its mpirun has made the file "ready".
  [[nodiscard]] pid_t launch_apart(const LaunchOptions& options) const {
    const pid_t launcher = fork();
    if (launcher == 0) {
      int status = 1;
      try {
        status = start_ranks(options);
      } catch (const Error&) {
        status = 99;
      }
      _exit(status);
    }
    EXPECT_TRUE(appears("ready"));
    return launcher;
  }

  static int exit_status(pid_t process) {
    int status = 0;
    EXPECT_EQ(waitpid(process, &status, 0), process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  TestFolder folder_;
};

constexpr const char* kWait = "touch ready\nwhile :; do sleep 0.02; done\n";

TEST_F(LaunchTest, PassesTheExitStatusThrough) {
  EXPECT_EQ(start_ranks(with_script("exit 0")), 0);
  EXPECT_EQ(start_ranks(with_script("exit 42")), 42);
  EXPECT_EQ(start_ranks(with_script("kill -9 $$")), 128 + 9);
}

TEST_F(LaunchTest, StartsThisProgramInAGroupOfItsOwnWithoutInput) {
  EXPECT_EQ(start_ranks(with_script("printf '%s\\n' \"$@\" > words\n"
                                    "readlink /proc/self/fd/0 > input\n"
                                    "cut -d ' ' -f 5 /proc/$$/stat > group\n"
                                    "echo $$ > process\n")),
            0);
  const std::string words = read_text(file("words"));
  const auto program = std::filesystem::read_symlink("/proc/self/exe").string();
  EXPECT_TRUE(words.starts_with("-n\n2\n")) << words;
  EXPECT_TRUE(words.ends_with("\n" + program + "\ntrain\na b\n")) << words;
  EXPECT_EQ(read_text(file("input")), "/dev/null\n");
  EXPECT_EQ(read_text(file("group")), read_text(file("process")));
}

TEST_F(LaunchTest, TurnsTheFirstSignalIntoUsr1) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const auto options = with_script(std::string("trap 'exit 7' USR1\ntrap 'exit 8' INT TERM HUP\n") + kWait);
    const pid_t launcher = launch_apart(options);
    kill(launcher, number);
    EXPECT_EQ(exit_status(launcher), 7);
    std::filesystem::remove(file("ready"));
  }
}

TEST_F(LaunchTest, AsksAgainWhereTheFirstTimeIsLost) {
  const auto options = with_script(
      std::string("trap 'if [ -e asked ]; then exit 7; fi; touch asked' USR1\ntrap 'exit 8' TERM\n") + kWait);
  const pid_t launcher = launch_apart(options);
  kill(launcher, SIGINT);
  EXPECT_EQ(exit_status(launcher), 7);
}

TEST_F(LaunchTest, TurnsTheSecondInterruptIntoTerm) {
  const auto options = with_script(std::string("trap 'touch asked' USR1\ntrap 'exit 8' TERM\n") + kWait);
  const pid_t launcher = launch_apart(options);
  kill(launcher, SIGINT);
  ASSERT_TRUE(appears("asked"));
  kill(launcher, SIGINT);
  EXPECT_EQ(exit_status(launcher), 8);
}

TEST_F(LaunchTest, DoesNotOutliveItsLauncher) {
  const auto options = with_script(std::string("trap 'touch ended; exit' TERM\n") + kWait);
  const pid_t launcher = launch_apart(options);
  kill(launcher, SIGKILL);
  EXPECT_EQ(exit_status(launcher), -1);
  EXPECT_TRUE(appears("ended"));
}

TEST_F(LaunchTest, RestoresTheSignalsOfTheCaller) {
  sigset_t before = {};
  sigset_t after = {};
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  EXPECT_EQ(start_ranks(with_script("exit 0")), 0);
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
    EXPECT_EQ(sigismember(&before, number), sigismember(&after, number));
  }
}

TEST_F(LaunchTest, SaysWhatIsMissing) {
  const auto error_of = [](const LaunchOptions& options) -> std::string {
    try {
      return "status " + std::to_string(start_ranks(options));
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_NE(error_of({.mpirun = "no-such-mpirun"}).find("no-such-mpirun is not installed"),
            std::string::npos);
  const auto not_executable = folder_.write("text", "x").string();
  EXPECT_NE(error_of({.mpirun = not_executable}).find("Permission denied"), std::string::npos);
  EXPECT_NE(error_of({.ranks = 0}).find("--ranks 0"), std::string::npos);
}

TEST_F(LaunchTest, StartsRanksThroughTheInstalledMpirun) {
  const std::string script = "touch " + file("rank-$OMPI_COMM_WORLD_RANK-of-$OMPI_COMM_WORLD_SIZE").string();
  EXPECT_EQ(start_ranks({.ranks = 3, .arguments = {"-c", script}, .program = "/bin/sh"}), 0);
  for (const char* name : {"rank-0-of-3", "rank-1-of-3", "rank-2-of-3"}) {
    EXPECT_TRUE(std::filesystem::exists(file(name))) << name;
  }
  EXPECT_EQ(start_ranks({.ranks = 1, .arguments = {"-c", "exit 3"}, .program = "/bin/sh"}), 3);
}

TEST_F(LaunchTest, HandsUsr1ToTheRanks) {
  const std::string script =
      "trap 'exit 0' USR1; touch " + file("ready").string() + "; while :; do sleep 0.02; done";
  const pid_t launcher = launch_apart({.ranks = 1, .arguments = {"-c", script}, .program = "/bin/sh"});
  kill(launcher, SIGINT);
  EXPECT_EQ(exit_status(launcher), 0);
}

}  // namespace
}  // namespace expedite::launch
