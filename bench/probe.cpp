#include "bench/probe.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "bench/collective_times.h"
#include "bench/kernel_times.h"
#include "bench/yardstick.h"
#include "expedite/base/cores.h"
#include "expedite/base/median.h"
#include "expedite/comm/collectives.h"
#include "expedite/comm/machine.h"
#include "expedite/kernels/matmul_speed.h"
#include "expedite/kernels/memory_speed.h"
#include "expedite/kernels/product.h"
#include "expedite/model/quick_cluster.h"

namespace expedite::bench {
namespace {

struct WeightShape {
  std::int64_t n;
  std::int64_t k;
};

/// How much to measure.
struct Effort {
  double sample_s;
  int samples;  // whose median counts
  std::vector<std::int64_t> rows;
  std::vector<WeightShape> weights;
};

Effort effort_of(bool quick) {
  if (quick) {
    return {.sample_s = 0.005, .samples = 1, .rows = {64, 1024}, .weights = {{1024, 1024}}};
  }
  return {.sample_s = 0.01,
          .samples = 3,
          .rows = {16, 64, 256, 1024, 2048},
          .weights = {{1024, 512}, {1024, 1024}, {2048, 1024}, {1024, 4096}}};
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "cluster";
}

class Probe {
 public:
  Probe(const comm::ProcessGrid& grid, const ProbeOptions& options)
      : grid_(grid), options_(options), effort_(effort_of(options.quick)) {}

  cost::Cluster run() {
    cost::Cluster cluster{.name = comm::broadcast_text(grid_.world(), host_name(), 0),
                          .nodes = grid_.nodes(),
                          .ranks_per_node = comm::all_reduce(grid_.world(), std::int64_t{grid_.local_size()},
                                                             comm::ReduceOp::max)};
    cost::Device device{.cores = options_.threads,
                        .memory_bytes = machine_memory_bytes() / ranks_on_machine()};
    for (const DType type : {DType::bf16, DType::f32}) {
      say(fmt::format("{} products", name_of(type)));
      device.matmul.push_back(matmul_rates(type));
    }
    device.kernels = kernel_times(grid_, options_.quick, options_.threads, ranks_on_machine(),
                                  [this](std::string_view what) { say(what); });
    say("caches and memory");
    measure_memory(device);
    cluster.devices.push_back(std::move(device));
    if (grid_.size() > 1) {
      say("links");
      model::probe_links(grid_, {.quick = options_.quick}, cluster);
    }
    measure_execution(
        grid_, {.quick = options_.quick, .threads = options_.threads},
        [this](std::string_view what) { say(what); }, cluster);
    return cluster;
  }

 private:
  void say(std::string_view what) const {
    comm::barrier(grid_.world());  // all ranks load the machine with the same thing
    if (grid_.rank() == 0) {
      fmt::print(stderr, "measuring {}\n", what);
    }
  }

  [[nodiscard]] double agree(double measured) const { return model::agree(grid_.world(), measured); }

  [[nodiscard]] std::int64_t ranks_on_machine() const {
    return std::ssize(comm::ranks_of_machine(grid_.world()));
  }

  cost::MatmulRates matmul_rates(DType type) {
    const auto peak = matmul_peak(type);
    std::vector<double> peaks;
    for (int i = 0; i < effort_.samples; ++i) {
      peaks.push_back(peak->sample());
    }
    cost::MatmulRates rates{.dtype = type, .peak_flops_per_s = agree(median(peaks))};
    for (const WeightShape& weight : effort_.weights) {
      for (const std::int64_t rows : effort_.rows) {
        rates.shapes.push_back({.m = rows,
                                .n = weight.n,
                                .k = weight.k,
                                .flops_per_s = agree(matmul_rate(type, rows, weight.n, weight.k))});
      }
    }
    return rates;
  }

  [[nodiscard]] double matmul_rate(DType type, std::int64_t m, std::int64_t n, std::int64_t k) const {
    std::vector<double> rates;
    for (int sample = 0; sample < effort_.samples; ++sample) {
      rates.push_back(kernels::matmul_speed(type, m, n, k, effort_.sample_s));
    }
    return median(rates);
  }

  void measure_memory(cost::Device& device) const {
    std::int64_t beyond = std::int64_t{64} << 20;  // larger than any cache
    for (const CacheSize& cache : cache_sizes()) {
      // Half of a thread's share, so that whatever else there is does not push it out.
      const std::int64_t share = std::max<std::int64_t>(cache.bytes / (2 * cache.cores), 512);
      const auto speed = memory(share);
      device.caches.push_back({.level = cache.level,
                               .bytes = cache.bytes,
                               .cores = cache.cores,
                               .read_bytes_per_s = speed.read_bytes_per_s,
                               .copy_bytes_per_s = speed.copy_bytes_per_s});
      beyond = std::max(beyond, 4 * cache.bytes / cache.cores);
    }
    const auto speed = memory(beyond);
    device.memory_read_bytes_per_s = speed.read_bytes_per_s;
    device.memory_copy_bytes_per_s = speed.copy_bytes_per_s;
  }

  [[nodiscard]] kernels::MemorySpeed memory(std::int64_t bytes_per_thread) const {
    comm::barrier(grid_.world());
    const auto speed = kernels::memory_speed(bytes_per_thread, 2.0 * effort_.sample_s);
    return {agree(speed.read_bytes_per_s), agree(speed.copy_bytes_per_s)};
  }

  const comm::ProcessGrid& grid_;
  ProbeOptions options_;
  Effort effort_;
};

void print(const cost::Device& device) {
  fmt::print("\n{}, {} core{} per rank\n", device.kind, device.cores, device.cores == 1 ? "" : "s");
  for (const cost::MatmulRates& rates : device.matmul) {
    fmt::print("  {} products: {:.1f} GFLOP/s at most\n", name_of(rates.dtype), rates.peak_flops_per_s / 1e9);
    fmt::print("    {:>6} {:>6} {:>6} {:>10} {:>9}\n", "rows", "N", "K", "GFLOP/s", "of peak");
    for (const cost::MatmulRate& rate : rates.shapes) {
      fmt::print("    {:>6} {:>6} {:>6} {:>10.1f} {:>7.0f} %\n", rate.m, rate.n, rate.k,
                 rate.flops_per_s / 1e9, 100.0 * rate.flops_per_s / rates.peak_flops_per_s);
    }
  }
  fmt::print("  {:<8} {:>12} {:>10} {:>10}\n", "", "KiB", "read GB/s", "copy GB/s");
  for (const cost::Cache& cache : device.caches) {
    fmt::print("  L{:<7} {:>12} {:>10.1f} {:>10.1f}\n", cache.level, cache.bytes / 1024,
               cache.read_bytes_per_s / 1e9, cache.copy_bytes_per_s / 1e9);
  }
  fmt::print("  {:<8} {:>12} {:>10.1f} {:>10.1f}\n", "memory", "", device.memory_read_bytes_per_s / 1e9,
             device.memory_copy_bytes_per_s / 1e9);
}

void print(const cost::Link& link) {
  fmt::print("\n{}, per rank and direction, both directions in use\n", link.name);
  fmt::print("  latency {:.1f} us, {:.3g} small messages/s\n", link.latency_s * 1e6, link.message_rate_per_s);
  fmt::print("  {:.3f} GB/s with all ranks at work, {:.3f} GB/s for two alone\n",
             link.bandwidth_bytes_per_s / 1e9, link.pair_bandwidth_bytes_per_s / 1e9);
  for (const cost::MessageBandwidth& point : link.bandwidth_by_size) {
    fmt::print("    messages of {:>5} KiB {:>9.3f} GB/s\n", point.message_bytes / 1024,
               point.bytes_per_s / 1e9);
  }
}

}  // namespace

cost::Cluster probe_cluster(const comm::ProcessGrid& grid, const ProbeOptions& options) {
  const kernels::ThreadLimit limit(options.threads);
  return Probe(grid, options).run();
}

void print(const cost::Cluster& cluster) {
  fmt::print("{}: {} node{} of {} rank{}\n", cluster.name, cluster.nodes, cluster.nodes == 1 ? "" : "s",
             cluster.ranks_per_node, cluster.ranks_per_node == 1 ? "" : "s");
  for (const cost::Device& device : cluster.devices) {
    print(device);
  }
  for (const cost::Link& link : cluster.links) {
    print(link);
  }
}

}  // namespace expedite::bench
