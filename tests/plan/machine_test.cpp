#include "expedite/plan/machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "expedite/base/error.h"
#include "expedite/plan/builtin_clusters.h"

namespace expedite::plan {
namespace {

Machine h100(std::int64_t devices) {
  return make_machine(make_cluster(*find_device_facts("h100"), devices), devices);
}

TEST(Machine, CountsGroupMembersWithinADomain) {
  const Machine machine = h100(64);
  EXPECT_EQ(machine.span(8, 1).inside[0], 8);
  EXPECT_EQ(machine.span(8, 2).inside[0], 4);
  EXPECT_EQ(machine.span(8, 8).inside[0], 1);
  EXPECT_EQ(machine.span(64, 1).inside[1], 64);
  EXPECT_EQ(machine.span(2, 1).inside[0], 2);
}

TEST(Machine, GathersAtTheSlowestLevel) {
  const Machine machine = h100(64);
  const double bytes = 8e9;
  // Inside a node at the links' bandwidth.
  EXPECT_NEAR(gather_seconds(machine, machine.span(8, 1), bytes), 7.0 / 8.0 * bytes / 450e9, 1e-4);
  // All of a node's ranks carry between nodes together: 8 * 50 GB/s.
  EXPECT_NEAR(gather_seconds(machine, machine.span(64, 1), bytes), 63.0 / 64.0 * bytes / 400e9, 1e-3);
  // One rank of each node.
  EXPECT_NEAR(gather_seconds(machine, machine.span(8, 8), bytes), 7.0 / 8.0 * bytes / 50e9, 1e-3);
  EXPECT_EQ(gather_seconds(machine, machine.span(1, 1), bytes), 0.0);
}

TEST(Machine, ExchangesOnAllLevelsAtOnce) {
  const Machine machine = h100(64);
  const double bytes = 8e9;
  EXPECT_NEAR(all_to_all_seconds(machine, machine.span(8, 1), bytes), 7.0 / 8.0 * bytes / 450e9, 1e-4);
  EXPECT_NEAR(all_to_all_seconds(machine, machine.span(64, 1), bytes), 56.0 / 64.0 * bytes / 50e9, 1e-3);
  EXPECT_NEAR(send_seconds(machine, 1, bytes), bytes / 450e9, 1e-4);
  EXPECT_NEAR(send_seconds(machine, 8, bytes), bytes / 50e9, 1e-4);
}

TEST(Machine, KnowsThreeLevels) {
  cost::Cluster cluster = make_cluster(*find_device_facts("h100"), 64);
  cluster.links[1].ranks = 32;
  cluster.links[1].name = "rail";
  cluster.links.push_back({.name = "inter_node",
                           .latency_s = 1e-5,
                           .message_rate_per_s = 1e6,
                           .bandwidth_bytes_per_s = 1e9,
                           .pair_bandwidth_bytes_per_s = 1e9});
  const Machine machine = make_machine(cluster, 64);
  ASSERT_EQ(machine.level_count, 3);
  EXPECT_NEAR(gather_seconds(machine, machine.span(64, 1), 1e9), 63.0 / 64.0 * 1e9 / 32e9, 1e-4);
}

TEST(Machine, TakesDomainsThatDivideTheJob) {
  const Machine machine = make_machine(make_cluster(*find_device_facts("gb200"), 256), 256);
  EXPECT_EQ(machine.levels[0].ranks, 64);
}

TEST(Machine, HasEveryPublishedDevice) {
  for (const DeviceFacts& facts : published_devices()) {
    for (const std::int64_t devices : {1, 3, 8, 1000}) {
      const Machine machine = make_machine(make_cluster(facts, devices), devices);
      EXPECT_GT(machine.peak_of(Precision::bf16), 1e14) << facts.name;
      EXPECT_GT(machine.memory_bytes, 6e10);
    }
  }
  // 376 T is the bin's FP16 rate, not BF16.
  const Machine ascend = make_machine(make_cluster(*find_device_facts("ascend-910b"), 8), 8);
  EXPECT_EQ(ascend.peak_of(Precision::bf16), 353.9e12);
  EXPECT_EQ(ascend.peak_of(Precision::fp16), 376e12);
}

TEST(Machine, SaysWhatIsMissing) {
  const auto refusal = [](const cost::Cluster& cluster, std::string_view kind = "") {
    try {
      (void)make_machine(cluster, 64, kind);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  cost::Cluster cluster = make_cluster(*find_device_facts("h100"), 64);
  EXPECT_EQ(refusal(cluster), "");
  EXPECT_NE(refusal(cluster, "B200").find("has no device of kind B200; it has H100-80GB"), std::string::npos);
  cluster.links.pop_back();
  EXPECT_NE(refusal(cluster).find("no level of links joins all 64 ranks"), std::string::npos);
  cluster.devices[0].memory_bytes = 0;
  EXPECT_NE(refusal(cluster).find("lacks memory_bytes"), std::string::npos);
  cluster.devices[0].peaks.clear();
  EXPECT_NE(refusal(cluster).find("no peak of bf16"), std::string::npos);
  EXPECT_THROW((void)load_cluster("h101", 8), Error);
}

}  // namespace
}  // namespace expedite::plan
