// Starts and ends MPI, and turns its error codes into exceptions.
#pragma once

#include <string_view>

#include "expedite/comm/mpi.h"

namespace expedite::comm {

/// Throws an Error with MPI's own text unless `code` is MPI_SUCCESS. `call` is the MPI function, `where` what
/// it was called for ("dispatch over group ep").
void check(int code, std::string_view call, std::string_view where = {});

/// MPI between construction and destruction, at MPI_THREAD_FUNNELED: every MPI call of the process is made by
/// the thread that constructs this. A program that no launcher started becomes a job of one rank, without
/// daemons. One per process. Errors of MPI calls are returned (see check), not fatal.
///
/// Destruction while an exception unwinds a job of several ranks ends the whole job (MPI_Abort): MPI_Finalize
/// would wait for ranks that wait for this one. Catch, print and call abort() inside its scope to choose the
/// message.
class MpiEnvironment {
 public:
  MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;
  ~MpiEnvironment();

  /// Prints "[rank r] message" on standard error and ends every rank of the job with exit status `code`.
  [[noreturn]] static void abort(int code, std::string_view message);

  /// Whether mpirun, srun or another launcher started this process as one rank of a job.
  [[nodiscard]] static bool started_by_launcher();

 private:
  int exceptions_at_start_;
};

}  // namespace expedite::comm
