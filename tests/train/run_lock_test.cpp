#include "expedite/train/run_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <optional>

#include "expedite/base/error.h"
#include "tests/test_folder.h"

namespace expedite::train {
namespace {

namespace fs = std::filesystem;

/// The message of the refusal, or "free".
std::string try_lock(const fs::path& run) {
  try {
    const RunLock lock(run);
    return "free";
  } catch (const Error& error) {
    return error.what();
  }
}

/// A process that holds the lock of a run until it is killed.
class Holder {
 public:
  explicit Holder(const fs::path& run) {
    std::array<int, 2> ends = {};
    EXPECT_EQ(pipe(ends.data()), 0);
    child_ = fork();
    if (child_ == 0) {
      const RunLock lock(run);
      static_cast<void>(write(ends[1], "x", 1));
      pause();
    }
    char ready = 0;
    EXPECT_EQ(read(ends[0], &ready, 1), 1);
    close(ends[0]);
    close(ends[1]);
  }
  ~Holder() { end(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  [[nodiscard]] pid_t pid() const { return child_; }
  void end() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
      child_ = 0;
    }
  }

 private:
  pid_t child_ = 0;
};

TEST(RunLock, NamesTheProcessThatHasIt) {
  const TestFolder folder;
  const fs::path run = folder.path() / "runs/mine";
  Holder holder(run);
  std::array<char, 256> host = {};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  const std::string owner = "process " + std::to_string(holder.pid()) + " on " + host.data();
  EXPECT_NE(try_lock(run).find(owner), std::string::npos) << try_lock(run);
  EXPECT_THROW(require_unlocked(run), Error);
  // Another name is another run.
  EXPECT_EQ(try_lock(folder.path() / "runs/other"), "free");
  // Moving the folder takes nothing away.
  fs::create_directories(run);
  fs::rename(run, folder.path() / "runs/mine.previous-1");
  EXPECT_NE(try_lock(run), "free");
}

TEST(RunLock, EndsWithItsProcessHoweverThatEnds) {
  const TestFolder folder;
  const fs::path run = folder.path() / "mine";
  Holder holder(run);
  holder.end();
  EXPECT_TRUE(fs::exists(folder.path() / "mine.lock"));  // killed: it could not clean up
  require_unlocked(run);
  EXPECT_EQ(try_lock(run), "free");
  EXPECT_FALSE(fs::exists(folder.path() / "mine.lock"));
  // Nor does a file that says anything.
  folder.write("mine.lock", "process 1 on elsewhere\n");
  EXPECT_EQ(try_lock(run), "free");
}

TEST(RunLock, IsTakenAnewAfterItsOwner) {
  const TestFolder folder;
  const fs::path run = folder.path() / "mine";
  std::optional<RunLock> lock(std::in_place, run);
  EXPECT_NE(try_lock(run), "free");
  lock.reset();
  EXPECT_EQ(try_lock(run), "free");
  require_unlocked(run);
}

}  // namespace
}  // namespace expedite::train
