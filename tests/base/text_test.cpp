#include "expedite/base/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace expedite {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("steps", "steps"), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("steps", "step"), 1);
  EXPECT_EQ(edit_distance("stops", "steps"), 1);
  EXPECT_EQ(edit_distance("setps", "steps"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(NearestName, PrefersTheSmallestDistance) {
  const std::vector<std::string> names = {"train.steps", "train.log_interval", "trace.steps", "optimizer.lr"};
  EXPECT_EQ(nearest_name("train.stpes", names), "train.steps");
  EXPECT_EQ(nearest_name("trcae.steps", names), "trace.steps");
  EXPECT_EQ(nearest_name("trian.steps", names), "train.steps");
  EXPECT_EQ(nearest_name("log_intervall", names), "train.log_interval");
}

TEST(NearestName, FindsTheRightNameInTheWrongSection) {
  const std::vector<std::string> names = {"seed", "dtype", "optimizer.lr"};
  EXPECT_EQ(nearest_name("lr", names), "optimizer.lr");
  EXPECT_EQ(nearest_name("train.lr", names), "optimizer.lr");
}

TEST(NearestName, IsEmptyWithoutCandidates) {
  EXPECT_EQ(nearest_name("lr", {}), "");
}

TEST(JoinChoices, ReadsAsASentence) {
  EXPECT_EQ(join_choices({}), "");
  EXPECT_EQ(join_choices(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(join_choices(std::vector<std::string>{"a", "b"}), "a or b");
  EXPECT_EQ(join_choices(std::vector<std::string>{"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace expedite
