#include "expedite/cost/collective_cost.h"

#include <gtest/gtest.h>

#include "expedite/base/error.h"

namespace expedite::cost {
namespace {

using schedule::Collective;

Cluster measured() {
  Cluster cluster{.name = "lab", .nodes = 2, .ranks_per_node = 2};
  cluster.collectives = {
      {Collective::all_to_all, 2, 1, {{100, 1.0, 2.0, 0.9}, {300, 2.0, 5.0, 0.7}}},
      {Collective::all_to_all, 2, 2, {{100, 10.0, 20.0, 0.5}, {300, 30.0, 60.0, 0.5}}},
      {Collective::all_to_all, 1, 2, {{100, 0.1, 0.2, 1.0}}},
  };
  return cluster;
}

TEST(CollectiveCost, IsLinearInBytes) {
  const auto at = [](double bytes) {
    return collective_time(measured(), Collective::all_to_all, 2, 1, bytes);
  };
  EXPECT_DOUBLE_EQ(at(100).seconds, 1.0);
  EXPECT_DOUBLE_EQ(at(200).seconds, 1.5);
  EXPECT_DOUBLE_EQ(at(200).busy_seconds, 3.5);
  EXPECT_DOUBLE_EQ(at(200).compute_share, 0.8);
  EXPECT_DOUBLE_EQ(at(500).seconds, 3.0);
  EXPECT_DOUBLE_EQ(at(500).compute_share, 0.7);
  EXPECT_DOUBLE_EQ(at(1).seconds, 1.0) << "latency";
}

TEST(CollectiveCost, OfOneBehindAnotherWhereThatWasMeasured) {
  Cluster cluster = measured();
  EXPECT_EQ(collective_time(cluster, Collective::all_to_all, 2, 1, 200).repeated_seconds, 0.0);
  cluster.collectives[0].times[0].repeated_seconds = 1.5;
  EXPECT_EQ(collective_time(cluster, Collective::all_to_all, 2, 1, 200).repeated_seconds, 0.0);
  cluster.collectives[0].times[1].repeated_seconds = 3.5;
  EXPECT_DOUBLE_EQ(collective_time(cluster, Collective::all_to_all, 2, 1, 200).repeated_seconds, 2.5);
}

TEST(CollectiveCost, TakesTheGroupThatIsMostAlike) {
  EXPECT_DOUBLE_EQ(collective_time(measured(), Collective::all_to_all, 2, 2, 100).seconds, 10.0);
  EXPECT_DOUBLE_EQ(collective_time(measured(), Collective::all_to_all, 4, 1, 100).seconds, 1.0);
  EXPECT_DOUBLE_EQ(collective_time(measured(), Collective::all_to_all, 1, 4, 100).seconds, 0.1);
  EXPECT_EQ(collective_time(measured(), Collective::all_to_all, 1, 1, 100).seconds, 0.0) << "alone";
}

TEST(CollectiveCost, SaysWhatWasNotMeasured) {
  try {
    static_cast<void>(collective_time(measured(), Collective::all_reduce, 2, 2, 100));
    FAIL() << "nothing was said";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("all_reduce"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("expedite probe"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace expedite::cost
