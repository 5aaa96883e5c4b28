// One run of a name at a time: a lock beside the run's folder.
#pragma once

#include <filesystem>

#include "expedite/base/durable_file.h"

namespace expedite::train {

/// Holds <run folder>.lock, a file that says which process of which host has it. The lock itself is the
/// kernel's (flock, which NFS passes on to its server), so it ends with the process that holds it, however
/// that ends; a file that lies there without one means nothing. It is beside the folder since a run that is
/// not resumed moves the folder aside.
class RunLock {
 public:
  /// Throws Error naming host and process of the run that has it. Where the file system knows no locks,
  /// warns.
  explicit RunLock(const std::filesystem::path& run_dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

/// Throws as RunLock when another process holds the run's folder, and leaves nothing behind.
void require_unlocked(const std::filesystem::path& run_dir);

}  // namespace expedite::train
