#include "expedite/train/progress.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

namespace expedite::train {
namespace {

using std::chrono::milliseconds;

/// A stream into memory and a clock that stands still.
class ProgressTest : public testing::Test {
 protected:
  ProgressTest() : stream_(open_memstream(&buffer_, &size_)) {}
  ~ProgressTest() override {
    std::fclose(stream_);
    std::free(buffer_);
  }

  Progress::Options options(std::optional<int> width) {
    return {.live_width = width,
            .live_interval = milliseconds(100),
            .plain_interval = milliseconds(1000),
            .now = [this] { return now_; }};
  }

  [[nodiscard]] std::string text() const {
    std::fflush(stream_);
    return {buffer_, size_};
  }

  static ProgressState at(std::int64_t step) {
    return {.step = step, .steps = 9, .loss = 2.0, .tokens_per_second = 5.0};
  }

  void pass(milliseconds time) { now_ += time; }

  std::FILE* stream() { return stream_; }

 private:
  char* buffer_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* stream_;
  Progress::Clock::time_point now_{std::chrono::hours(1)};
};

TEST(FormatProgress, ShowsWhatIsKnown) {
  EXPECT_EQ(format_progress({.step = 120,
                             .steps = 1000,
                             .loss = 2.1337,
                             .validation_bits_per_byte = 2.8714,
                             .tokens_per_second = 41'234.0,
                             .exposed_communication = 0.031,
                             .seconds_left = 125.0}),
            "step 120/1000  loss 2.134  val 2.871 bits/byte  41.2k tokens/s  exposed 3.1%  left 2m05s");
  EXPECT_EQ(format_progress({.step = 1, .steps = 2, .loss = 5.0, .tokens_per_second = 950.4}),
            "step 1/2  loss 5.000  950 tokens/s");
}

TEST(FormatProgress, ShowsTimesAndRatesOfAnySize) {
  const auto left = [](double seconds) {
    const std::string line = format_progress({.seconds_left = seconds});
    return line.substr(line.rfind(' ') + 1);
  };
  EXPECT_EQ(left(0.4), "0s");
  EXPECT_EQ(left(-3.0), "0s");
  EXPECT_EQ(left(59.6), "1m00s");
  EXPECT_EQ(left(3600.0 * 3 + 60 * 7), "3h07m");
  EXPECT_EQ(left(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(left(std::numeric_limits<double>::quiet_NaN()), "?");
  EXPECT_NE(format_progress({.tokens_per_second = 2.34e6}).find("2.3M tokens/s"), std::string::npos);
}

TEST_F(ProgressTest, PrintsPlainLinesAtMostOncePerInterval) {
  Progress progress(stream(), options(std::nullopt));
  progress.update(at(1));
  progress.update(at(2));
  pass(milliseconds(999));
  progress.update(at(3));
  pass(milliseconds(1));
  progress.update(at(4));
  progress.update(at(5));
  progress.note("saved");
  progress.update(at(9));
  progress.finish();
  EXPECT_EQ(text(),
            "step 1/9  loss 2.000  5 tokens/s\n"
            "step 4/9  loss 2.000  5 tokens/s\n"
            "saved\n"
            "step 9/9  loss 2.000  5 tokens/s\n");
}

TEST_F(ProgressTest, ShowsTheLastStateWhenItEndsEarly) {
  {
    Progress progress(stream(), options(std::nullopt));
    progress.update(at(1));
    progress.update(at(2));
  }
  EXPECT_EQ(text(), "step 1/9  loss 2.000  5 tokens/s\nstep 2/9  loss 2.000  5 tokens/s\n");
}

TEST_F(ProgressTest, RedrawsInPlaceOnATerminal) {
  Progress progress(stream(), options(80));
  progress.update(at(1));
  EXPECT_EQ(text(), "step 1/9  loss 2.000  5 tokens/s");
  progress.update(at(2));  // too soon
  pass(milliseconds(100));
  progress.update(at(3));
  EXPECT_EQ(text(), "step 1/9  loss 2.000  5 tokens/s\r\x1b[Kstep 3/9  loss 2.000  5 tokens/s");
  progress.finish();
  progress.finish();
  EXPECT_EQ(text(), "step 1/9  loss 2.000  5 tokens/s\r\x1b[Kstep 3/9  loss 2.000  5 tokens/s\n");
}

TEST_F(ProgressTest, PutsNotesAboveTheLiveLine) {
  Progress progress(stream(), options(80));
  progress.note("begin");
  progress.update(at(1));
  progress.note("saved");
  progress.finish();
  EXPECT_EQ(text(),
            "begin\nstep 1/9  loss 2.000  5 tokens/s\r\x1b[Ksaved\nstep 1/9  loss 2.000  5 tokens/s\n");
}

TEST_F(ProgressTest, NeverWrapsANarrowTerminal) {
  Progress progress(stream(), options(11));
  progress.update(at(1));
  EXPECT_EQ(text(), "step 1/9  ");
}

TEST_F(ProgressTest, IsSilentWithoutUpdates) {
  { const Progress progress(stream(), options(80)); }
  { const Progress progress(stream()); }
  EXPECT_EQ(text(), "");
}

TEST(TerminalWidth, IsNothingForAFile) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(terminal_width(file));
  std::fclose(file);
}

}  // namespace
}  // namespace expedite::train
