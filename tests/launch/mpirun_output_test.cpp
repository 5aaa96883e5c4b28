#include "expedite/launch/mpirun_output.h"

#include <gtest/gtest.h>

namespace expedite::launch {
namespace {

const std::string kRuler(74, '-');

std::string block(const std::string& text) {
  return kRuler + "\n" + text + "\n" + kRuler + "\n";
}

/// What is left of a text that comes in pieces of `piece` bytes.
std::vector<std::string> left(const std::string& text, std::size_t piece = 7) {
  std::vector<std::string> lines;
  MpirunOutput output([&](std::string_view line) { lines.emplace_back(line); });
  for (std::size_t at = 0; at < text.size(); at += piece) {
    output.add(std::string_view(text).substr(at, piece));
  }
  output.finish();
  return lines;
}

using Lines = std::vector<std::string>;

const std::string kAbort = block(
    "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n\nNOTE: invoking "
    "MPI_ABORT "
    "causes Open MPI to kill all MPI processes.\nYou may or may not see output from other processes, "
    "depending "
    "on\nexactly when Open MPI kills them.");
const std::string kStatus = block(
    "mpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be "
    "terminated. "
    "The first process to do so was:\n\n  Process name: [[2837,1],3]\n  Exit code:    7");

TEST(MpirunOutput, KeepsWhatRanksSay) {
  for (const std::size_t piece : {1, 5, 4096}) {
    EXPECT_EQ(left("[rank 0] no such file\n\ntwo\nwithout an end", piece),
              (Lines{"[rank 0] no such file", "", "two", "without an end"}));
  }
  EXPECT_EQ(left("---- a heading ----\n------\n"), (Lines{"---- a heading ----", "------"}));
}

TEST(MpirunOutput, LeavesOutWhatRepeatsIt) {
  EXPECT_EQ(
      left(
          "[rank 0] wrong\n" + kAbort + kStatus +
          "[host:12] 3 more processes have sent help message help-mpi-api.txt / mpi-abort\n"
          "[host:12] [[20698,0],0] ORTE_ERROR_LOG: Out of resource in file ../orte/util/show_help.c at line "
          "501\n"
          "[host:12] Set MCA parameter \"orte_base_help_aggregate\" to 0 to see all help / error messages\n"),
      (Lines{"[rank 0] wrong"}));
  EXPECT_EQ(left("[rank 1] wrong\n" +
                 block("Primary job  terminated normally, but 1 process returned\na non-zero exit "
                       "code. Per user-direction, the job has been aborted.")),
            (Lines{"[rank 1] wrong"}));
}

TEST(MpirunOutput, LeavesOutThatOthersNoticeADeath) {
  EXPECT_EQ(
      left(block(
          "An MPI communication peer process has unexpectedly disconnected.  This\nusually indicates a "
          "failure in the peer process (e.g., a crash or\notherwise exiting without calling MPI_FINALIZE "
          "first).")),
      Lines{});
}

TEST(MpirunOutput, SaysInALineHowARankDied) {
  EXPECT_EQ(
      left(block("mpirun noticed that process rank 2 with PID 0 on node box exited on signal 9 (Killed).")),
      (Lines{"[rank 2] died of signal 9 (Killed): process 0 on box"}));
  EXPECT_EQ(left(kStatus), (Lines{"[rank 3] ended with exit status 7"}));
  EXPECT_EQ(left(kAbort +
                 block("mpirun has exited due to process rank 1 with PID 77 on\nnode box exiting improperly. "
                       "There are three reasons this could occur:")),
            (Lines{"[rank 1] ended before the job did: process 77 on box"}));
}

TEST(MpirunOutput, PassesOnWhatItDoesNotKnow) {
  const std::string text = "There are not enough slots available in the system to satisfy the 4\nslots";
  EXPECT_EQ(left(block(text)),
            (Lines{"There are not enough slots available in the system to satisfy the 4", "slots"}));
  EXPECT_EQ(left(kRuler + "\nhalf a message\n").size(), 2);
  // A rank's own ruler, and much after it.
  std::string many = kRuler + "\n";
  for (int i = 0; i < 100; ++i) {
    many += "line\n";
  }
  EXPECT_EQ(left(many).size(), 101);
}

}  // namespace
}  // namespace expedite::launch
