#include "expedite/cost/cluster.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "expedite/base/error.h"
#include "expedite/base/random.h"

namespace expedite::cost {
namespace {

Cluster two_by_two() {
  return {.name = "two by two: \"lab\"",
          .nodes = 2,
          .ranks_per_node = 2,
          .devices = {{.kind = "cpu",
                       .cores = 3,
                       .memory_read_bytes_per_s = 1.25e10,
                       .memory_copy_bytes_per_s = 1e10 / 3.0,
                       .matmul = {{.dtype = DType::bf16,
                                   .peak_flops_per_s = 5.1e11,
                                   .shapes = {{16, 1024, 512, 2.5e11}, {2048, 1024, 512, 4.9e11}}},
                                  {.dtype = DType::f32, .peak_flops_per_s = 2.5e11, .shapes = {}}},
                       .caches = {{.level = 1,
                                   .bytes = 32768,
                                   .cores = 1,
                                   .read_bytes_per_s = 2e11,
                                   .copy_bytes_per_s = 1.5e11}},
                       .kernels = {{.kernel = "rms_norm",
                                    .dtype = DType::f32,
                                    .axes = {{"rows", {16, 256}}, {"columns", {64, 128, 1024}}},
                                    .seconds = {1e-6, 2e-6, 3e-6, 1.25e-5, 1.0 / 3.0, 2.0}}}}},
          .links = {{.name = "intra_node",
                     .latency_s = 1.5e-6,
                     .message_rate_per_s = 1e6,
                     .bandwidth_bytes_per_s = 4e9,
                     .pair_bandwidth_bytes_per_s = 5e9,
                     .bandwidth_by_size = {{65536, 3e9}, {4194304, 4e9}}},
                    {.name = "inter_node",
                     .latency_s = 4e-5,
                     .message_rate_per_s = 5e4,
                     .bandwidth_bytes_per_s = 1.2e8,
                     .pair_bandwidth_bytes_per_s = 2.3e8}},
          .sharing = {.node = 1.75, .cluster = 1.0},
          .task_seconds = 1.5e-5,
          .collectives = {{schedule::Collective::all_reduce,
                           2,
                           1,
                           {{8, 1e-5, 2e-3, 0.75}, {4096, 1e-4, 3e-3, 1.0, 1.5e-3}}}}};
}

std::string error_of(const std::string& yaml) {
  try {
    static_cast<void>(parse_cluster(yaml, "c.yaml"));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// The error when the first `from` in a right file is `to`.
std::string error_with(const std::string& from, const std::string& to) {
  std::string yaml = to_yaml(two_by_two());
  const auto place = yaml.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return error_of(yaml.replace(place, from.size(), to));
}

TEST(Cluster, ReadsWhatItWrites) {
  const Cluster cluster = two_by_two();
  EXPECT_EQ(parse_cluster(to_yaml(cluster), "c.yaml"), cluster);
  Cluster smallest;
  smallest.devices = {{.memory_read_bytes_per_s = 1.0, .memory_copy_bytes_per_s = 1.0}};
  EXPECT_EQ(parse_cluster(to_yaml(smallest), "c.yaml"), smallest);
  EXPECT_EQ(cluster.find_link(kInterNode), &cluster.links[1]);
  EXPECT_EQ(smallest.find_link(kInterNode), nullptr);
  EXPECT_EQ(cluster.ranks(), 4);
}

TEST(Cluster, KeepsDataSheetsAndAnyLevels) {
  Cluster cluster = two_by_two();
  cluster.devices[0].memory_bytes = 64'000'000'000;
  cluster.devices[0].peaks = {{"bf16", 353.9e12}, {"fp16", 376e12}};
  cluster.links.push_back({.name = "rack",
                           .ranks = 64,
                           .latency_s = 1e-6,
                           .message_rate_per_s = 1e6,
                           .bandwidth_bytes_per_s = 1e11,
                           .pair_bandwidth_bytes_per_s = 2e11});
  EXPECT_EQ(parse_cluster(to_yaml(cluster), "c.yaml"), cluster);
}

TEST(Cluster, ReadsAFile) {
  const auto path = std::filesystem::path(testing::TempDir()) / "expedite_cluster_test.yaml";
  std::ofstream(path) << to_yaml(two_by_two());
  EXPECT_EQ(read_cluster(path.string()), two_by_two());
  std::filesystem::remove(path);
  try {
    static_cast<void>(read_cluster(path.string()));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), path.string() + ": cannot open: No such file or directory");
  }
}

TEST(Cluster, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(error_with("nodes: 2", "nodes: 0"), "c.yaml:5: nodes = 0: expected an integer >= 1");
  EXPECT_EQ(error_with("nodes: 2", "nodes: 1.5"), "c.yaml:5: nodes = 1.5: expected an integer >= 1");
  EXPECT_EQ(error_with("nodes: 2", "nodes: [2]"), "c.yaml:5: nodes = a list: expected an integer >= 1");
  EXPECT_EQ(error_with("nodes: 2", "nodes: 18446744073709551615"),
            "c.yaml:5: nodes = 18446744073709551615: expected an integer >= 1");
  EXPECT_EQ(error_with("nodes: 2", "node: 2"), "c.yaml:3: the key nodes is missing; is node meant?");
  EXPECT_EQ(error_with("nodes: 2", "nodes: 2\nracks: 1"),
            "c.yaml:6: unknown key racks; the nearest known key is links");
  EXPECT_EQ(error_with("nodes: 2", "nodes: 2\nnodes: 2"), "c.yaml:6: the key nodes is there twice; keep one");
  EXPECT_EQ(error_with("expedite_cluster: 1", "expedite_cluster: 9"),
            "c.yaml: expedite_cluster = 9: this program reads version 1; run expedite probe again");
  EXPECT_EQ(error_with("dtype: bf16", "dtype: f16"),
            "c.yaml:13: devices[0].matmul[0].dtype = f16: expected bf16 or f32");
  EXPECT_EQ(error_with("k: 512, flops_per_s: 250000000000", "k: 512, flops_per_s: -1"),
            "c.yaml:16: devices[0].matmul[0].shapes[0].flops_per_s = -1: expected a number > 0");
  EXPECT_EQ(error_with("latency_s: 1.5e-06", "latency_s: .nan"), "c.yaml:32: .nan is not a finite number");
  EXPECT_EQ(error_with("latency_s: 1.5e-06", "latency_s: soon"),
            "c.yaml:32: links[0].latency_s = soon: expected a number > 0");
  EXPECT_EQ(error_with("kind: cpu", "kind: \xff"),
            "c.yaml:8: devices[0].kind = \xff: expected a text in UTF-8");
  EXPECT_EQ(error_with("name: intra_node", "name: ring"),
            "c.yaml: the link ring needs the key ranks, how many it joins; only intra_node and inter_node go "
            "without");
}

TEST(Cluster, WantsTheLinksThatItsRanksNeed) {
  EXPECT_EQ(error_with("name: intra_node", "name: inter_node"),
            "c.yaml: links has inter_node twice; keep one");
  Cluster cluster = two_by_two();
  cluster.links.pop_back();
  EXPECT_EQ(error_of(to_yaml(cluster)), "c.yaml: 2 nodes need a link named inter_node");
  cluster.links.clear();
  EXPECT_EQ(error_of(to_yaml(cluster)), "c.yaml: 2 ranks per node need a link named intra_node");
  cluster.devices.push_back(cluster.devices.front());
  EXPECT_EQ(error_of(to_yaml(cluster)), "c.yaml: devices has the kind cpu twice; keep one");
  cluster.devices.clear();
  EXPECT_EQ(error_of(to_yaml(cluster)), "c.yaml: devices is empty; at least one kind is needed");
}

TEST(Cluster, OtherFilesAreErrors) {
  for (const char* yaml : {"", "~", "words", "[1, 2]", "{}", "a: b", "- - -", "? [1]: 2", "{", "a: b: c",
                           "\t", "--- {}\n--- {}", "&a {b: *a}", "!!binary x"}) {
    EXPECT_NE(error_of(yaml), "no error") << yaml;
  }
  EXPECT_NE(error_of(std::string(100'000, '[')), "no error");
  EXPECT_NE(error_of(std::string("nodes\0: 2", 9)), "no error");
}

// Damaged files either read as some legal cluster or are an Error, nothing else.
TEST(Cluster, SurvivesDamage) {
  const std::string yaml = to_yaml(two_by_two());
  constexpr std::string_view kBytes = "{}[]:,-#&*!|>'\"%@`? \n\t0.e~aZ\x80\xff";
  int read = 0;
  for (std::uint64_t trial = 0; trial < 3000; ++trial) {
    const Philox random(trial, stream_of("damage"));
    std::string damaged = yaml;
    for (std::uint64_t i = 0; i <= random.bits(0) % 3; ++i) {
      const std::size_t place = random.bits(4 * i + 1) % damaged.size();
      const char byte = kBytes[random.bits(4 * i + 2) % kBytes.size()];
      switch (random.bits(4 * i + 3) % 4) {
        case 0:
          damaged[place] = byte;
          break;
        case 1:
          damaged.insert(place, 1, byte);
          break;
        case 2:
          damaged.erase(place, 1 + random.bits(4 * i + 4) % 20);
          break;
        default:
          damaged.resize(place + 1);
      }
    }
    try {
      const Cluster cluster = parse_cluster(damaged, "c.yaml");
      EXPECT_EQ(parse_cluster(to_yaml(cluster), "again"), cluster) << damaged;
      ++read;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("c.yaml")) << error.what();
    }
  }
  EXPECT_GT(read, 0);
}

TEST(Cluster, WhatWasMeasuredOfExecutionMayBeMissing) {
  Cluster older = two_by_two();
  older.devices.front().kernels.clear();
  older.collectives.clear();
  older.task_seconds = 0.0;
  older.sharing = {};
  std::string yaml = to_yaml(older);
  const auto line = yaml.find("sharing:");
  yaml.erase(line, yaml.find('\n', line) - line + 1);
  EXPECT_EQ(parse_cluster(yaml, "c.yaml"), older);
}

TEST(Cluster, RefusesGridsThatAreNone) {
  EXPECT_NE(error_with("sizes: [16, 256]", "sizes: [256, 16]").find("rows"), std::string::npos);
  EXPECT_NE(error_with("sizes: [16, 256]", "sizes: [16]").find("6 seconds"), std::string::npos);
  EXPECT_NE(error_with("bytes: 4096", "bytes: 4").find("must rise"), std::string::npos);
  EXPECT_NE(error_with("all_reduce", "all_reduced").find("all_to_all"), std::string::npos);
}

}  // namespace
}  // namespace expedite::cost
