#include "expedite/model/quick_cluster.h"

#include <gtest/gtest.h>

#include "expedite/comm/collectives.h"
#include "expedite/cost/dispatch_cost.h"

namespace expedite::model {
namespace {

TEST(QuickCluster, IsLegalAndTheSameOnAllRanks) {
  const auto world = comm::Communicator::world();
  const comm::ProcessGrid grid(world, world.size());
  const cost::Cluster cluster = quick_cluster(grid, 1);
  EXPECT_EQ(cluster.ranks(), world.size());
  const std::string yaml = to_yaml(cluster);
  EXPECT_EQ(cost::parse_cluster(yaml, "quick"), cluster);
  EXPECT_EQ(comm::broadcast_text(world, yaml, 0), yaml);
}

TEST(QuickCluster, IsEnoughToChooseADispatcher) {
  const auto world = comm::Communicator::world();
  const comm::ProcessGrid grid(world, world.size());
  cost::DispatchCase layer{.routing = {.experts = 8, .topk = 2}};
  layer.tokens = 64;
  layer.hidden = 32;
  for (int expert = 0; expert < 8; ++expert) {
    layer.rank_of_expert.push_back(comm::expert_owner(8, world.size(), expert));
  }
  for (int rank = 0; rank < world.size(); ++rank) {
    layer.node_of_rank.push_back(grid.node_of(rank));
  }
  const auto choice = cost::choose_dispatcher(quick_cluster(grid, 1), layer);
  EXPECT_EQ(choice.cost.seconds > 0.0, world.size() > 1);
  EXPECT_EQ(choice.cost.inter_bytes, 0.0);  // the tests' ranks share a node
}

}  // namespace
}  // namespace expedite::model
