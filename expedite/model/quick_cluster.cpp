#include "expedite/model/quick_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "expedite/base/cores.h"
#include "expedite/base/median.h"
#include "expedite/comm/collectives.h"
#include "expedite/kernels/matmul_speed.h"
#include "expedite/kernels/memory_speed.h"
#include "expedite/kernels/product.h"

namespace expedite::model {
namespace {

double to_four_digits(double value) {
  return std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr);
}

cost::Link to_link(comm::LinkLevel level, const comm::LinkRates& rates) {
  cost::Link link{.name = std::string(comm::name_of(level)),
                  .latency_s = to_four_digits(rates.latency_s),
                  .message_rate_per_s = to_four_digits(rates.message_rate_per_s),
                  .bandwidth_bytes_per_s = to_four_digits(rates.bandwidth_bytes_per_s),
                  .pair_bandwidth_bytes_per_s = to_four_digits(rates.pair_bandwidth_bytes_per_s)};
  for (const comm::SizedBandwidth& point : rates.by_size) {
    link.bandwidth_by_size.push_back({point.message_bytes, to_four_digits(point.bytes_per_s)});
  }
  return link;
}

}  // namespace

cost::Cluster quick_cluster(const comm::ProcessGrid& grid, int threads) {
  constexpr double kCopySeconds = 0.01;
  constexpr std::int64_t kBeyondCaches = std::int64_t{32} << 20;  // of each rank
  const kernels::ThreadLimit limit(threads);
  cost::Cluster cluster{.nodes = grid.nodes(), .ranks_per_node = grid.local_size()};
  probe_links(grid, {.quick = true}, cluster);
  comm::barrier(grid.world());
  const kernels::MemorySpeed memory = kernels::memory_speed(kBeyondCaches / threads, kCopySeconds);
  cluster.devices.push_back({.cores = threads,
                             .memory_read_bytes_per_s = agree(grid.world(), memory.read_bytes_per_s),
                             .memory_copy_bytes_per_s = agree(grid.world(), memory.copy_bytes_per_s)});
  return cluster;
}

cost::DispatchCase dispatch_case(const ModelConfig& config, const comm::Placement& placement, int rank,
                                 DType dtype, std::int64_t tokens, std::int64_t chunks) {
  cost::DispatchCase layer{.routing = {.experts = config.experts, .topk = config.experts_per_token}};
  const int ranks = placement.layout.expert_parallel_size();
  for (std::int64_t expert = 0; expert < config.experts; ++expert) {
    layer.rank_of_expert.push_back(comm::expert_owner(config.experts, ranks, expert));
  }
  std::map<int, int> numbers;  // the group may be on some of the nodes only
  for (const int member : placement.layout.expert_parallel_ranks(rank)) {
    const auto [node, added] = numbers.emplace(placement.node(member), static_cast<int>(numbers.size()));
    layer.node_of_rank.push_back(node->second);
  }
  layer.tokens = tokens;
  layer.hidden = config.hidden_size;
  layer.element_bytes = size_of(dtype);
  layer.chunks = chunks;
  return layer;
}

cost::ExpertLayer expert_layer(const ModelConfig& config, const comm::Placement& placement, int rank,
                               DType dtype, std::int64_t tokens, const schedule::EpPlan& plan) {
  return {.dispatch = dispatch_case(config, placement, rank, dtype, tokens, 1),
          .ffn = config.moe_intermediate_size,
          .shared_ffn = config.shared_expert_intermediate_size,
          .dtype = dtype,
          .plan = plan};
}

void probe_products(const comm::ProcessGrid& grid, int threads, DType dtype,
                    std::span<const cost::ProductSize> sizes, cost::Cluster& cluster) {
  constexpr double kSeconds = 0.005;
  const kernels::ThreadLimit limit(threads);
  comm::barrier(grid.world());
  cost::MatmulRates rates{.dtype = dtype};
  for (const auto& [m, n, k] : sizes) {
    const double rate = agree(grid.world(), kernels::matmul_speed(dtype, m, n, k, kSeconds));
    rates.shapes.push_back({.m = m, .n = n, .k = k, .flops_per_s = rate});
    rates.peak_flops_per_s = std::max(rates.peak_flops_per_s, rate);
  }
  cluster.devices.front().matmul.push_back(std::move(rates));
}

void probe_links(const comm::ProcessGrid& grid, const comm::LinkProbeOptions& options,
                 cost::Cluster& cluster) {
  std::vector<int> node_of;
  for (int rank = 0; rank < grid.size(); ++rank) {
    node_of.push_back(grid.node_of(rank));
  }
  for (const comm::LinkLevel level : {comm::LinkLevel::intra_node, comm::LinkLevel::inter_node}) {
    if (const auto rates = comm::probe_link(grid.world(), node_of, level, options)) {
      cluster.links.push_back(to_link(level, *rates));
    }
  }
}

double agree(const comm::Communicator& world, double measured) {
  agree(world, std::span(&measured, 1));
  return measured;
}

void agree(const comm::Communicator& world, std::span<double> measured) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<double> all(measured.size() * ranks);
  comm::all_gather_bytes(world, std::as_bytes(measured), std::as_writable_bytes(std::span(all)));
  std::vector<double> of_ranks(ranks);
  for (std::size_t i = 0; i < measured.size(); ++i) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      of_ranks[rank] = all[rank * measured.size() + i];
    }
    measured[i] = to_four_digits(median(of_ranks));
  }
}

}  // namespace expedite::model
