// Names and labels, which users read in traces and messages.
#include "expedite/schedule/schedule.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace expedite::schedule {
namespace {

template <typename Enum>
void expect_distinct_names(int count) {
  std::set<std::string_view> names;
  for (int i = 0; i < count; ++i) {
    names.insert(name_of(static_cast<Enum>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(names.count("?"), 0U);
  EXPECT_EQ(name_of(static_cast<Enum>(count)), "?");
}

TEST(Names, AreDistinct) {
  expect_distinct_names<Stream>(kStreams);
  expect_distinct_names<Op>(kOps);
  expect_distinct_names<Pass>(5);
  expect_distinct_names<Collective>(6);
}

TEST(Label, NamesWhatApplies) {
  EXPECT_EQ(label({.op = Op::dispatch, .pass = Pass::forward, .layer = 3, .micro_batch = 0}),
            "L3 mb0 dispatch forward");
  EXPECT_EQ(label({.op = Op::experts, .pass = Pass::weight_grad, .layer = 11, .micro_batch = 2, .chunk = 1}),
            "L11 mb2 c1 experts weight_grad");
  EXPECT_EQ(label({.op = Op::optimizer, .pass = Pass::update}), "optimizer update");
}

}  // namespace
}  // namespace expedite::schedule
