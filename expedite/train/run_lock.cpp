#include "expedite/train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "expedite/base/error.h"
#include "expedite/base/log.h"

namespace expedite::train {
namespace {

namespace fs = std::filesystem;

fs::path lock_path(const fs::path& run_dir) {
  fs::path path = run_dir;
  return path += ".lock";
}

std::string this_process() {
  std::array<char, 256> host = {};
  if (gethostname(host.data(), host.size() - 1) != 0) {
    return fmt::format("process {}", getpid());
  }
  return fmt::format("process {} on {}", getpid(), host.data());
}

std::string content(const Descriptor& file) {
  std::array<char, 512> text = {};
  const ssize_t length = pread(file.number(), text.data(), text.size(), 0);
  std::string line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  return line.substr(0, line.find('\n'));
}

[[noreturn]] void fail_taken(const fs::path& run_dir, const std::string& owner) {
  fail(
      "{} is in use by a run of this name: {}. Wait for it, end it, or give this run another name: --set "
      "name=...",
      run_dir.string(), owner.empty() ? "it has just begun" : owner);
}

/// False when the file system knows no locks.
bool take(const Descriptor& file, const fs::path& path, const fs::path& run_dir) {
  while (flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      fail_taken(run_dir, content(file));
    }
    if (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK) {
      return false;
    }
    require(errno == EINTR, "{}: cannot lock: {}", path.string(), std::strerror(errno));
  }
  return true;
}

/// Whether the file has been removed, by the run that had it, since it was opened.
bool is_gone(const Descriptor& file, const fs::path& path) {
  struct stat opened = {};
  struct stat named = {};
  return fstat(file.number(), &opened) != 0 || stat(path.c_str(), &named) != 0 ||
         opened.st_ino != named.st_ino || opened.st_dev != named.st_dev;
}

}  // namespace

RunLock::RunLock(const fs::path& run_dir) : path_(lock_path(run_dir)) {
  std::error_code error;
  if (path_.has_parent_path()) {
    fs::create_directories(path_.parent_path(), error);
    require(!error, "{}: cannot create (output_dir): {}", path_.parent_path().string(), error.message());
  }
  bool locked = false;
  do {
    file_ = Descriptor(path_, O_RDWR | O_CREAT, "lock the run");
    locked = take(file_, path_, run_dir);
  } while (locked && is_gone(file_, path_));
  if (!locked) {
    spdlog::warn("{}: this file system has no locks, so that a second run of this name would not be noticed",
                 path_.string());
  }
  require(ftruncate(file_.number(), 0) == 0, "{}: cannot write: {}", path_.string(), std::strerror(errno));
  write_all(file_, this_process() + "\n", path_);
}

RunLock::~RunLock() {
  unlink(path_.c_str());  // while it is locked: nobody else has it
}

void require_unlocked(const fs::path& run_dir) {
  const int number = open(lock_path(run_dir).c_str(), O_RDWR | O_CLOEXEC);
  if (number < 0) {
    return;  // nobody has made it, or it cannot be opened, which the run will tell
  }
  const Descriptor file(number);
  static_cast<void>(take(file, lock_path(run_dir), run_dir));
}

}  // namespace expedite::train
