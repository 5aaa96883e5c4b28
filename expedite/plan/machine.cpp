#include "expedite/plan/machine.h"

#include <algorithm>
#include <cmath>

#include "expedite/base/error.h"
#include "expedite/base/text.h"

namespace expedite::plan {
namespace {

/// The largest divisor of `ranks` that is at most `most`.
std::int64_t divisor_up_to(std::int64_t ranks, std::int64_t most) {
  if (most >= ranks) {
    return ranks;
  }
  std::int64_t best = 1;
  for (std::int64_t d = 1; d * d <= ranks; ++d) {
    if (ranks % d == 0) {
      for (const std::int64_t divisor : {d, ranks / d}) {
        best = divisor <= most ? std::max(best, divisor) : best;
      }
    }
  }
  return best;
}

const cost::Device& find_device(const cost::Cluster& cluster, std::string_view kind) {
  if (kind.empty()) {
    return cluster.devices.front();
  }
  std::vector<std::string> kinds;
  for (const cost::Device& device : cluster.devices) {
    if (device.kind == kind) {
      return device;
    }
    kinds.push_back(device.kind);
  }
  fail("cluster {} has no device of kind {}; it has {}", cluster.name, kind, join_choices(kinds));
}

double peak_of(const cost::Device& device, std::string_view precision) {
  for (const cost::PeakRate& rate : device.peaks) {
    if (rate.precision == precision) {
      return rate.flops_per_s;
    }
  }
  for (const cost::MatmulRates& rates : device.matmul) {
    if (name_of(rates.dtype) == precision) {
      return rates.peak_flops_per_s;
    }
  }
  return 0.0;
}

std::array<double, kPrecisionNames.size()> peaks_of(const cost::Device& device) {
  const double bf16 = peak_of(device, "bf16");
  const double fp16 = peak_of(device, "fp16");
  const double fp8 = peak_of(device, "fp8");
  return {bf16, fp16 > 0.0 ? fp16 : bf16, fp8, fp8, peak_of(device, "fp4")};
}

}  // namespace

Span Machine::span(double size, double stride) const {
  Span span{.size = size};
  for (int i = 0; i < level_count; ++i) {
    span.inside[i] = std::clamp(std::floor(levels[i].ranks / stride), 1.0, size);
  }
  return span;
}

Machine make_machine(const cost::Cluster& cluster, std::int64_t ranks, std::string_view kind) {
  const cost::Device& device = find_device(cluster, kind);
  Machine machine{.ranks = ranks,
                  .levels = {},
                  .peak = peaks_of(device),
                  .memory_bytes = static_cast<double>(device.memory_bytes),
                  .memory_bandwidth = device.memory_read_bytes_per_s};
  require(machine.peak_of(Precision::bf16) > 0.0,
          "cluster {}: the device {} has no peak of bf16; give it one under peaks or matmul", cluster.name,
          device.kind);
  require(device.memory_bytes > 0, "cluster {}: the device {} lacks memory_bytes", cluster.name, device.kind);
  for (const cost::Link& link : cluster.links) {
    std::int64_t joined = link.ranks;
    if (joined == 0) {
      joined = link.name == cost::kIntraNode ? cluster.ranks_per_node : ranks;
    }
    require(machine.level_count < kMaxLevels, "cluster {}: {} levels of links; at most {} are planned for",
            cluster.name, cluster.links.size(), kMaxLevels);
    machine.levels[machine.level_count++] = {.ranks = static_cast<double>(divisor_up_to(ranks, joined)),
                                             .bandwidth = link.bandwidth_bytes_per_s,
                                             .latency = link.latency_s};
  }
  std::ranges::stable_sort(machine.levels.begin(), machine.levels.begin() + machine.level_count, {},
                           &Level::ranks);
  require(ranks == 1 || (machine.level_count > 0 &&
                         machine.levels[machine.level_count - 1].ranks >= static_cast<double>(ranks)),
          "cluster {}: no level of links joins all {} ranks; add one named {}", cluster.name, ranks,
          cost::kInterNode);
  return machine;
}

double gather_seconds(const Machine& machine, const Span& span, double bytes) {
  if (span.size <= 1.0 || bytes <= 0.0) {
    return 0.0;
  }
  double bandwidth = INFINITY;
  double latency = 0.0;
  double inner = 1.0;
  for (int i = 0; i < machine.level_count; ++i) {
    const double joined = span.inside[i] / inner;
    if (joined > 1.0) {
      bandwidth = std::min(bandwidth, machine.levels[i].bandwidth * inner);
      latency += machine.levels[i].latency * std::log2(joined);
      inner = span.inside[i];
    }
  }
  return (span.size - 1.0) / span.size * bytes / bandwidth + latency;
}

double all_to_all_seconds(const Machine& machine, const Span& span, double bytes) {
  if (span.size <= 1.0 || bytes <= 0.0) {
    return 0.0;
  }
  double slowest = 0.0;
  double latency = 0.0;
  double inner = 1.0;
  for (int i = 0; i < machine.level_count; ++i) {
    const double peers = span.inside[i] - inner;
    if (peers > 0.0) {
      slowest = std::max(slowest, bytes * peers / span.size / machine.levels[i].bandwidth);
      latency = std::max(latency, machine.levels[i].latency * std::log2(1.0 + peers));
      inner = span.inside[i];
    }
  }
  return slowest + latency;
}

double send_seconds(const Machine& machine, double stride, double bytes) {
  for (int i = 0; i < machine.level_count; ++i) {
    if (machine.levels[i].ranks > stride) {
      return bytes / machine.levels[i].bandwidth + machine.levels[i].latency;
    }
  }
  return 0.0;
}

}  // namespace expedite::plan
