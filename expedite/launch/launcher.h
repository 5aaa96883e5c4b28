// Starts this program again as the ranks of an MPI job, and sees whether that has already been done.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace expedite::launch {

/// Who started this process as a rank, and of how many, where the environment says so.
struct MpiJob {
  std::string launcher;  // "Open MPI", "PMIx", "PMI" or "Slurm"
  std::optional<std::int64_t> ranks;
};

using GetEnvironment = std::function<std::optional<std::string>(const char*)>;

/// Nothing when this process has been started by hand, also in a Slurm batch or interactive shell without
/// srun.
[[nodiscard]] std::optional<MpiJob> detect_mpi_job(const GetEnvironment& get);
[[nodiscard]] std::optional<MpiJob> detect_mpi_job();  // from this process's environment

/// Of one machine; larger jobs are started with their cluster's launcher.
inline constexpr std::int64_t kMostRanks = 1024;

struct LaunchOptions {
  std::int64_t ranks = 1;
  std::vector<std::string> arguments = {};  // of the ranks, without argv[0]
  std::string program = {};                 // empty: this program (through /proc/self/exe)
  std::string mpirun = "mpirun";            // name looked up in PATH, or path
};

/// The command line that start_ranks() runs, for a machine of `cores` cores.
[[nodiscard]] std::vector<std::string> mpirun_command(const LaunchOptions& options,
                                                      const std::string& program, std::int64_t cores,
                                                      bool root);

/// Runs mpirun to its end and returns its exit status (128 + n when signal n ended it).
/// mpirun gets a process group of its own, no input, and our output; of its standard error, MpirunOutput
/// passes on what is worth reading. The first SIGINT, SIGTERM or SIGHUP is passed on as SIGUSR1, which mpirun
/// hands to the ranks (see StopSignal: they finish the step, save and exit; Open MPI would kill them a second
/// after a SIGINT) and repeated after 1, 2, 4... seconds, since mpirun loses it while it starts the ranks;
/// each further one is passed on as SIGTERM, which ends the job. When this process dies mpirun gets SIGTERM
/// from the kernel. Call it from the main thread while there is no other. Throws Error when mpirun is not
/// installed or cannot be started.
[[nodiscard]] int start_ranks(const LaunchOptions& options);

}  // namespace expedite::launch
