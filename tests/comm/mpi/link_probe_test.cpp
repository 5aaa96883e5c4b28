#include "expedite/comm/link_probe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "expedite/base/error.h"
#include "expedite/comm/collectives.h"

namespace expedite::comm {
namespace {

/// As if `ranks_per_node` ranks, one after the other, shared a node.
std::vector<int> nodes_of(int ranks, int ranks_per_node) {
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank) {
    node_of.push_back(7 - rank / ranks_per_node);
  }
  return node_of;
}

void expect_rates(const Communicator& world, const LinkRates& rates) {
  std::vector<double> numbers = {rates.latency_s, rates.message_rate_per_s, rates.bandwidth_bytes_per_s,
                                 rates.pair_bandwidth_bytes_per_s};
  ASSERT_FALSE(rates.by_size.empty());
  std::int64_t before = 0;
  for (const SizedBandwidth& point : rates.by_size) {
    EXPECT_GT(point.message_bytes, before);
    before = point.message_bytes;
    numbers.push_back(point.bytes_per_s);
  }
  EXPECT_EQ(rates.bandwidth_bytes_per_s, rates.by_size.back().bytes_per_s);
  for (const double number : numbers) {
    EXPECT_TRUE(std::isfinite(number) && number > 0.0) << number;
    EXPECT_EQ(all_reduce(world, number, ReduceOp::max), number);  // the same on all ranks
  }
}

TEST(LinkProbe, MeasuresTheLevelsThatThereAre) {
  const auto world = Communicator::world();
  for (int ranks_per_node = 1; ranks_per_node <= world.size(); ++ranks_per_node) {
    const auto node_of = nodes_of(world.size(), ranks_per_node);
    const auto intra = probe_link(world, node_of, LinkLevel::intra_node, {.quick = true});
    const auto inter = probe_link(world, node_of, LinkLevel::inter_node, {.quick = true});
    EXPECT_EQ(intra.has_value(), ranks_per_node > 1);
    EXPECT_EQ(inter.has_value(), ranks_per_node < world.size());
    for (const auto& rates : {intra, inter}) {
      if (rates) {
        expect_rates(world, *rates);
      }
    }
  }
}

TEST(LinkProbe, MeasuresMoreSizesWhenItTakesItsTime) {
  const auto world = Communicator::world();
  const auto rates = probe_link(world, nodes_of(world.size(), 1), LinkLevel::inter_node);
  ASSERT_EQ(rates.has_value(), world.size() > 1);
  if (rates) {
    EXPECT_GT(rates->by_size.size(), 1U);
    expect_rates(world, *rates);
  }
}

TEST(LinkProbe, RefusesAMapOfOtherRanks) {
  const auto world = Communicator::world();
  const std::vector<int> too_many(static_cast<std::size_t>(world.size()) + 1, 0);
  EXPECT_THROW(static_cast<void>(probe_link(world, too_many, LinkLevel::intra_node)), Error);
}

TEST(LinkProbe, NamesItsLevels) {
  EXPECT_EQ(name_of(LinkLevel::intra_node), "intra_node");
  EXPECT_EQ(name_of(LinkLevel::inter_node), "inter_node");
}

}  // namespace
}  // namespace expedite::comm
