// Recording, statistics, packing, and the file that Perfetto opens.
#include "expedite/tracing/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "expedite/base/error.h"
#include "expedite/tracing/trace_json.h"

namespace expedite::tracing {
namespace {

using schedule::Op;
using schedule::Pass;
using schedule::Stream;

std::vector<TraceEvent> sample_events() {
  return {
      {.op = Op::permute, .layer = 3, .micro_batch = 0, .begin = 1'000'100, .end = 1'000'400, .wait = 100},
      {.op = Op::dispatch,
       .stream = Stream::intra,
       .layer = 3,
       .micro_batch = 0,
       .chunk = 1,
       .begin = 1'000'400,
       .end = 1'001'005,
       .bytes = 5'000'000'000},
      {.op = Op::experts,
       .pass = Pass::input_grad,
       .layer = 3,
       .micro_batch = 0,
       .chunk = 2,
       .chunks = 2,
       .begin = 1'001'010,
       .end = 1'002'010,
       .wait = 610,
       .exposed = 610},
      {.op = Op::reduce_dense,
       .pass = Pass::update,
       .stream = Stream::reduce,
       .begin = 1'001'500,
       .end = 1'002'500,
       .bytes = 8}};
}

TEST(TraceStatistics, AddUp) {
  const StepStatistics statistics = summarize(sample_events(), 1'000'000, 1'003'000);
  EXPECT_EQ(statistics.wall, 3000);
  EXPECT_EQ(statistics.compute_busy, 300 + 1000);
  EXPECT_EQ(statistics.exposed_communication, 610 + 490);  // before the experts, and after them
  EXPECT_EQ(statistics.bytes, 5'000'000'008);
  EXPECT_EQ(statistics.by_op[static_cast<std::size_t>(Op::dispatch)], 605);
  EXPECT_EQ(statistics.by_op[static_cast<std::size_t>(Op::experts)], 1000);
  EXPECT_EQ(statistics.by_op[static_cast<std::size_t>(Op::loss)], 0);
  EXPECT_EQ(summarize({}, 5, 9).exposed_communication, 0);
}

TEST(TraceRecorder, KeepsTheLatestSteps) {
  TraceRecorder recorder(2);
  EXPECT_THROW(recorder.record({}), Error);
  for (int step = 0; step < 5; ++step) {
    recorder.begin_step(100 * step);
    for (int i = 0; i <= step; ++i) {
      recorder.record({.layer = step, .begin = 100 * step + i, .end = 100 * step + i + 1});
    }
    recorder.end_step(100 * step + 50);
    EXPECT_EQ(recorder.statistics().step, step);
    EXPECT_EQ(recorder.statistics().compute_busy, step + 1);
    EXPECT_EQ(recorder.statistics().wall, 50);
  }
  const auto events = recorder.events();
  ASSERT_EQ(events.size(), 4U + 5U);
  EXPECT_EQ(events.front().layer, 3);
  EXPECT_EQ(events.back().layer, 4);
  EXPECT_THROW(TraceRecorder(0), Error);
}

TEST(TracePacking, BringsEverythingBack) {
  const RankTrace trace{
      .rank = 3,
      .clock_offset = -12345678901,
      .events = sample_events(),
      .memory = {{5, MemoryCategory::weights, 7'000'000'000}, {6, MemoryCategory::workspace, 0}}};
  const auto bytes = pack(trace);
  const RankTrace back = unpack(bytes);
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.clock_offset, trace.clock_offset);
  EXPECT_EQ(back.events, trace.events);
  EXPECT_EQ(back.memory, trace.memory);
  EXPECT_TRUE(unpack(pack({})).events.empty());
}

TEST(TracePacking, RejectsWhatItDidNotMake) {
  auto bytes = pack({.rank = 0, .events = sample_events(), .memory = {{}}});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW((void)unpack(std::span(bytes).first(size)), Error);
  }
  auto op = bytes;
  op[28] = std::byte{200};  // the first event's op
  EXPECT_THROW((void)unpack(op), Error);
  bytes[0] ^= std::byte{1};
  EXPECT_THROW((void)unpack(bytes), Error);
}

TEST(ChromeTrace, IsJsonWithAProcessPerRankAndARowPerStream) {
  // Rank 1's clock is 500 ns behind, so its events come 500 ns later on rank 0's.
  const std::vector<RankTrace> ranks = {{.rank = 0, .events = sample_events()},
                                        {.rank = 1, .clock_offset = 500, .events = sample_events()}};
  const auto json = nlohmann::json::parse(to_chrome_json(ranks));
  const auto& events = json.at("traceEvents");
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  std::vector<nlohmann::json> complete;
  for (const auto& event : events) {
    const int pid = event.at("pid");
    if (event.at("ph") == "M" && event.at("name") == "process_name") {
      processes[pid] = event.at("args").at("name");
    } else if (event.at("ph") == "M" && event.at("name") == "thread_name") {
      threads[{pid, event.at("tid")}] = event.at("args").at("name");
    } else if (event.at("ph") == "X") {
      complete.push_back(event);
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{0, "rank 0"}, {1, "rank 1"}}));
  EXPECT_EQ(threads.size(), 6U);
  EXPECT_EQ((threads[{0, 0}]), "compute");
  EXPECT_EQ((threads[{1, 2}]), "intra");
  EXPECT_EQ((threads[{1, 4}]), "reduce");

  ASSERT_EQ(complete.size(), 8U);
  const auto& first = complete[0];
  EXPECT_EQ(first.at("name"), "L3 mb0 permute forward");
  EXPECT_DOUBLE_EQ(first.at("ts"), 0.0);
  EXPECT_DOUBLE_EQ(first.at("dur"), 0.3);
  EXPECT_EQ(first.at("args").at("layer"), 3);
  EXPECT_EQ(first.at("args").at("pass"), "forward");
  EXPECT_FALSE(first.at("args").contains("chunk"));
  EXPECT_FALSE(first.at("args").contains("bytes"));
  const auto& dispatch = complete[1];
  EXPECT_EQ(dispatch.at("name"), "L3 mb0 c1 dispatch forward");
  EXPECT_DOUBLE_EQ(dispatch.at("ts"), 0.3);
  EXPECT_DOUBLE_EQ(dispatch.at("dur"), 0.605);
  EXPECT_EQ(dispatch.at("args").at("bytes"), 5'000'000'000);
  EXPECT_EQ(dispatch.at("args").at("chunk"), 1);
  EXPECT_FALSE(dispatch.at("args").contains("chunks"));
  EXPECT_EQ(dispatch.at("tid"), 2);
  EXPECT_EQ(complete[2].at("name"), "L3 mb0 c2-3 experts input_grad");
  EXPECT_EQ(complete[2].at("args").at("chunk"), 2);
  EXPECT_EQ(complete[2].at("args").at("chunks"), 2);
  EXPECT_DOUBLE_EQ(complete[4].at("ts"), 0.5);
  EXPECT_EQ(complete[4].at("pid"), 1);

  EXPECT_TRUE(nlohmann::json::parse(to_chrome_json({})).at("traceEvents").empty());
}

TEST(ChromeTrace, CountsMemoryByCategory) {
  const RankTrace trace{
      .rank = 2, .events = sample_events(), .memory = {{1'000'600, MemoryCategory::activations, 3 << 20}}};
  const auto json = nlohmann::json::parse(to_chrome_json(std::span(&trace, 1)));
  const auto& counter = json.at("traceEvents").back();
  EXPECT_EQ(counter.at("ph"), "C");
  EXPECT_EQ(counter.at("pid"), 2);
  EXPECT_DOUBLE_EQ(counter.at("ts"), 0.5);
  EXPECT_DOUBLE_EQ(counter.at("args").at("activations"), 3.0);
}

TEST(ChromeTrace, IsWrittenToAFile) {
  const auto path = std::filesystem::temp_directory_path() / "expedite_trace_test.json";
  const RankTrace trace{.rank = 0, .events = sample_events()};
  write_chrome_trace(path, std::span(&trace, 1));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), to_chrome_json(std::span(&trace, 1)));
  std::filesystem::remove(path);
  try {
    write_chrome_trace("/no/such/folder/trace.json", {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/folder/trace.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace expedite::tracing
