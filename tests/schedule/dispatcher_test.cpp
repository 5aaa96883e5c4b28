#include "expedite/schedule/dispatcher.h"

#include <gtest/gtest.h>

#include <set>

namespace expedite::schedule {
namespace {

TEST(Dispatcher, EveryNameReadsAsItsDispatcher) {
  std::set<std::string> names;
  for (const Dispatcher dispatcher : kDispatchers) {
    EXPECT_EQ(parse_dispatcher(name_of(dispatcher)), dispatcher);
    names.emplace(name_of(dispatcher));
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"alltoall", "hierarchical", "hierarchical_dedup", "zero_redundancy"}));
  EXPECT_EQ(dispatcher_names().size(), names.size());
}

TEST(Dispatcher, OtherNamesAreNone) {
  for (const char* name : {"", "auto", "Alltoall", "hierarchical ", "zero-redundancy"}) {
    EXPECT_EQ(parse_dispatcher(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace expedite::schedule
