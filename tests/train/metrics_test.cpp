#include "expedite/train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "expedite/base/error.h"
#include "tests/test_folder.h"

namespace expedite::train {
namespace {

TEST(Metrics, WritesOneObjectPerLineAtOnce) {
  const TestFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricsWriter metrics(file);
  metrics.append({{"step", 1}, {"loss", 2.5}});
  EXPECT_EQ(read_text(file), "{\"loss\":2.5,\"step\":1}\n");
  metrics.append({{"step", 2}, {"loss", std::nan("")}, {"note", "a\nb\xff"}});
  EXPECT_EQ(read_text(file),
            "{\"loss\":2.5,\"step\":1}\n{\"loss\":null,\"note\":\"a\\nb\xEF\xBF\xBD\",\"step\":2}\n");
  EXPECT_THROW(metrics.append(3), Error);
}

TEST(Metrics, StartsAnEmptyFileForANewRun) {
  const TestFolder folder;
  const auto file = folder.write("metrics.jsonl", "{\"step\":1}\n");
  MetricsWriter metrics(file);
  EXPECT_EQ(read_text(file), "");
}

/// The file of a run that resumes after `step`, once it has written one line more.
std::string resumed(const std::string& content, std::int64_t step) {
  const TestFolder folder;
  const auto file = folder.write("metrics.jsonl", content);
  MetricsWriter metrics(file, step);
  metrics.append({{"new", true}});
  std::string text = read_text(file);
  constexpr std::string_view kNew = "{\"new\":true}\n";
  EXPECT_TRUE(text.ends_with(kNew)) << text;
  return text.substr(0, text.size() - kNew.size());
}

TEST(Metrics, CutsWhatIsBeyondTheResumedStep) {
  const std::string one = "{\"step\":10}\n";
  const std::string note = "{\"event\":\"validation\"}\n";
  const std::string two = "{\"step\":20}\n";
  const std::string three = "{\"step\":30}\n";
  EXPECT_EQ(resumed(one + note + two + three, 20), one + note + two);
  EXPECT_EQ(resumed(one + two + note + three, 10), one);
  EXPECT_EQ(resumed(one + two, 5), "");
  EXPECT_EQ(resumed(one + two, 1000), one + two);
  EXPECT_EQ(resumed("", 10), "");
}

TEST(Metrics, DropsATornLastLine) {
  const std::string one = "{\"step\":10}\n";
  const std::string two = "{\"step\":20, \"loss\":1.5}";
  for (std::size_t length = 1; length <= two.size(); ++length) {
    EXPECT_EQ(resumed(one + two.substr(0, length), 20), one) << length;
  }
  EXPECT_EQ(resumed(one + "{\"st\n", 20), one);
  EXPECT_EQ(resumed(one + std::string(4, '\0'), 20), one);  // a block that never reached the disk
}

TEST(Metrics, NamesALineThatIsNotMetrics) {
  const TestFolder folder;
  const auto file = folder.write("metrics.jsonl", "{\"step\":1}\nnonsense\n{\"step\":2}\n");
  try {
    const MetricsWriter metrics(file, 2);
    FAIL() << "the line was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(file.string() + ":2: is not a JSON object"), std::string::npos);
  }
  EXPECT_EQ(read_text(file), "{\"step\":1}\nnonsense\n{\"step\":2}\n");
}

TEST(Metrics, StartsAFileThatARunResumesWithout) {
  const TestFolder folder;
  MetricsWriter metrics(folder.path() / "metrics.jsonl", 10);
  metrics.append({{"step", 11}});
  EXPECT_EQ(read_text(folder.path() / "metrics.jsonl"), "{\"step\":11}\n");
  EXPECT_THROW(MetricsWriter(folder.path() / "absent" / "metrics.jsonl"), Error);
}

}  // namespace
}  // namespace expedite::train
