#include "expedite/comm/environment.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "expedite/base/error.h"
#include "expedite/comm/request.h"

namespace expedite::comm {
namespace {

int initialized_rank() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  int rank = -1;
  if (initialized != 0 && finalized == 0) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  }
  return rank;
}

}  // namespace

void check(int code, std::string_view call, std::string_view where) {
  if (code == MPI_SUCCESS) [[likely]] {
    return;
  }
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
    length = 0;
  }
  fail("{} failed{}{}: {} (MPI error {})", call, where.empty() ? "" : " for ", where,
       std::string_view(text, static_cast<std::size_t>(length)), code);
}

MpiEnvironment::MpiEnvironment() : exceptions_at_start_(std::uncaught_exceptions()) {
  require(initialized_rank() < 0, "MPI is already initialised");
  if (!started_by_launcher()) {
    // Open MPI would start a daemon for a lone process, in case it spawns others. Ours never does.
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  }
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  require(provided >= MPI_THREAD_FUNNELED,
          "this MPI library does not allow threads besides the one that calls it; use a build with thread "
          "support");
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiEnvironment::~MpiEnvironment() {
  if (initialized_rank() < 0) {
    return;
  }
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks > 1 && std::uncaught_exceptions() > exceptions_at_start_) {
    abort(EXIT_FAILURE, "an exception ends this rank, and with it the job");
  }
  if (ranks > 1) {
    // MPI_Finalize waits for all ranks without sleeping; this waits asleep.
    MPI_Request all_here = MPI_REQUEST_NULL;
    if (MPI_Ibarrier(MPI_COMM_WORLD, &all_here) == MPI_SUCCESS) {
      Backoff backoff;
      int complete = 0;
      while (MPI_Test(&all_here, &complete, MPI_STATUS_IGNORE) == MPI_SUCCESS && complete == 0) {
        backoff.sleep();
      }
    }
  }
  MPI_Finalize();
}

void MpiEnvironment::abort(int code, std::string_view message) {
  const int rank = initialized_rank();
  const std::string line =
      rank < 0 ? fmt::format("{}\n", message) : fmt::format("[rank {}] {}\n", rank, message);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(nullptr);
  if (rank >= 0) {
    MPI_Abort(MPI_COMM_WORLD, code);
  }
  std::_Exit(code);
}

bool MpiEnvironment::started_by_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID"}) {
    if (std::getenv(name) != nullptr) {
      return true;
    }
  }
  return false;
}

}  // namespace expedite::comm
