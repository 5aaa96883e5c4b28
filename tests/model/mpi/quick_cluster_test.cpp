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
  ModelConfig config;
  config.experts = 8;
  config.experts_per_token = 2;
  config.hidden_size = 32;
  const cost::DispatchCase layer = dispatch_case(config, grid.placement(), grid.rank(), DType::bf16, 64, 2);
  EXPECT_EQ(layer.node_of_rank, std::vector<int>(static_cast<std::size_t>(world.size()), 0));
  EXPECT_EQ(layer.rank_of_expert.front(), 0);
  EXPECT_EQ(layer.rank_of_expert.back(), world.size() - 1);
  const auto choice = cost::choose_dispatcher(quick_cluster(grid, 1), layer);
  EXPECT_EQ(choice.cost.seconds > 0.0, world.size() > 1);
  EXPECT_EQ(choice.cost.inter_bytes, 0.0);  // the tests' ranks share a node
}

}  // namespace
}  // namespace expedite::model
