// The control channel with an abort that throws, so that the test survives what ends a job.
#include "expedite/comm/control_channel.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "expedite/comm/collectives.h"

namespace expedite::comm {
namespace {

struct Aborted {};

/// A channel that notes what it prints, and a way to wait for all ranks while polling or not.
class ControlChannelTest : public ::testing::Test {
 protected:
  [[nodiscard]] ControlOptions options(std::chrono::milliseconds limit) {
    return {.answer_limit = limit,
            .report = [this] { return "compute: idle\nintra: on rank " + std::to_string(world_.rank()); },
            .on_peer_failure =
                [this](int rank, std::string_view text) {
                  failures_.push_back(std::to_string(rank) + ": " + std::string(text));
                },
            .print = [this](std::string_view text) { printed_ += text; },
            .abort = [](int) { throw Aborted(); }};
  }

  // All ranks leave together; `poll` runs meanwhile.
  template <typename Function>
  void meet(Function poll) {
    MPI_Request handle = MPI_REQUEST_NULL;
    ASSERT_EQ(MPI_Ibarrier(world_.handle(), &handle), MPI_SUCCESS);
    Request request(handle, "meeting");
    Backoff backoff;
    while (!request.test()) {
      poll();
      backoff.sleep();
    }
  }

  [[nodiscard]] std::string prefix() const { return "[rank " + std::to_string(world_.rank()) + "] "; }

  Communicator world_ = Communicator::world();
  std::string printed_;
  std::vector<std::string> failures_;
};

TEST_F(ControlChannelTest, IsSilentWhenAllIsWell) {
  ControlChannel channel(world_, options(std::chrono::seconds(30)));
  for (int i = 0; i < 10; ++i) {
    channel.poll();
  }
  meet([&] { channel.poll(); });
  EXPECT_EQ(printed_, "");
  EXPECT_TRUE(failures_.empty());
}

TEST_F(ControlChannelTest, MakesEveryRankReportAStallOnce) {
  ControlChannel channel(world_, options(std::chrono::seconds(30)));
  const int last = world_.size() - 1;
  if (world_.rank() == last) {
    EXPECT_THROW(channel.report_stall("L3 mb0 dispatch forward waits too long"), Aborted);
  }
  meet([&] { channel.poll(); });
  const std::string report =
      prefix() + "  compute: idle\n" + prefix() + "  intra: on rank " + std::to_string(world_.rank()) + "\n";
  if (world_.rank() == last) {
    EXPECT_EQ(printed_, prefix() + "L3 mb0 dispatch forward waits too long\n" + report);
  } else {
    EXPECT_EQ(printed_, report);
  }
}

TEST_F(ControlChannelTest, NamesRanksThatDoNotAnswer) {
  ControlChannel channel(world_, options(std::chrono::milliseconds(100)));
  const int silent = world_.size() - 1;
  if (world_.rank() == 0) {
    EXPECT_THROW(channel.report_stall("stalled"), Aborted);
    EXPECT_EQ(printed_.find("rank " + std::to_string(silent) + " does not answer") != std::string::npos,
              silent > 0)
        << printed_;
    // Ranks between may be late on a busy machine; those that answered are not named.
  }
  meet([&] {
    if (world_.rank() != silent) {
      channel.poll();
    }
  });
  channel.poll();  // the silent rank reads what it was asked
}

TEST_F(ControlChannelTest, LetsTheLowestRankLeadWhenSeveralStall) {
  ControlChannel channel(world_, options(std::chrono::milliseconds(300)));
  barrier(world_);
  EXPECT_THROW(channel.report_stall("stalled"), Aborted);
  EXPECT_NE(printed_.find("intra: on rank"), std::string::npos);
  EXPECT_EQ(printed_.find("intra: on rank"), printed_.rfind("intra: on rank"));  // reported once
  meet([&] { channel.poll(); });
}

TEST_F(ControlChannelTest, TellsTheOthersOfAFailure) {
  ControlChannel channel(world_, options(std::chrono::seconds(30)));
  const std::string text(2000, 'x');  // longer than a message: cut
  if (world_.rank() == 0) {
    EXPECT_THROW(channel.announce_failure(text), Aborted);
    EXPECT_EQ(printed_, "[rank 0] " + text + "\n");
  }
  meet([&] { channel.poll(); });
  if (world_.rank() != 0) {
    ASSERT_EQ(failures_.size(), 1U);
    EXPECT_EQ(failures_.front(), "0: " + text.substr(0, 1000));
    EXPECT_EQ(printed_, "");
  }
}

}  // namespace
}  // namespace expedite::comm
