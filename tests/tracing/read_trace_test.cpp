#include "expedite/tracing/read_trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "expedite/base/error.h"

namespace expedite::tracing {
namespace {

using schedule::Op;
using schedule::Pass;
using schedule::Stream;

class ReadTrace : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path write(const std::string& text) {
    std::ofstream(folder_ / "trace.json") << text;
    return folder_ / "trace.json";
  }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      ("read_trace_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(ReadTrace, GivesBackWhatWasWritten) {
  const std::vector<TraceEvent> events = {{.op = Op::embedding, .micro_batch = 0, .begin = 0, .end = 1234},
                                          {.op = Op::experts,
                                           .pass = Pass::weight_grad,
                                           .layer = 3,
                                           .micro_batch = 1,
                                           .chunk = 2,
                                           .chunks = 2,
                                           .begin = 2000,
                                           .end = 987'654'321,
                                           .wait = 766,
                                           .exposed = 500},
                                          {.op = Op::dispatch,
                                           .stream = Stream::inter,
                                           .layer = 3,
                                           .micro_batch = 1,
                                           .begin = 9,
                                           .end = 90,
                                           .bytes = 77}};
  const std::vector<RankTrace> written = {{.rank = 0, .events = events}, {.rank = 5, .events = {events[0]}}};
  write_chrome_trace(folder_ / "trace.json", written);
  const std::vector<RankTrace> read = read_chrome_trace(folder_ / "trace.json");
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].events, events);
  EXPECT_EQ(read[1].rank, 5);
  EXPECT_EQ(read[1].events, written[1].events);
}

TEST_F(ReadTrace, SaysWhatIsNoTrace) {
  EXPECT_THROW(static_cast<void>(read_chrome_trace(folder_ / "absent.json")), Error);
  EXPECT_THROW(static_cast<void>(read_chrome_trace(write("[1, 2]"))), Error);
  EXPECT_THROW(static_cast<void>(read_chrome_trace(write(R"({"traceEvents": [{"ph": "X", "pid": 0}]})"))),
               Error);
  EXPECT_THROW(
      static_cast<void>(read_chrome_trace(write(
          R"({"traceEvents": [{"ph":"X","pid":0,"tid":0,"cat":"nap","ts":0,"dur":1,"args":{"pass":"forward"}}]})"))),
      Error);
}

}  // namespace
}  // namespace expedite::tracing
