#include <gtest/gtest.h>

#include "expedite/base/cores.h"
#include "expedite/model/engine.h"

namespace expedite::model {
namespace {

TEST(OwnCores, AreAsManyThreadsAsProcessors) {
  const auto world = comm::Communicator::world();
  const comm::ProcessGrid grid(world, world.size());
  // The tests' ranks are on one machine and not bound.
  const auto processors = static_cast<int>(allowed_processors().count());
  const int most = processors / world.size();
  if (most > 0) {
    EXPECT_TRUE(own_cores(grid, most));
  }
  EXPECT_FALSE(own_cores(grid, most + 1));
  // One that wants more takes from the others.
  EXPECT_FALSE(own_cores(grid, world.rank() == 0 ? processors + 1 : 0));
}

}  // namespace
}  // namespace expedite::model
