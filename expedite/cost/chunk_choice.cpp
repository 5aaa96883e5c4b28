#include "expedite/cost/chunk_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "expedite/base/error.h"
#include "expedite/cost/chunk_overlap.h"
#include "expedite/cost/matmul_cost.h"

namespace expedite::cost {
namespace {

using schedule::ChunkPipeline;
using schedule::MoeRecompute;

constexpr double kAsGood = 0.01;
constexpr std::int64_t kRowAlignment = 16;  // an expert's rows of a chunk are padded to a multiple of it

/// The experts of the rank that gets the most rows.
struct BusiestRank {
  double rows = 0.0;  // of all tokens
  std::int64_t experts = 0;
};

BusiestRank busiest_rank(const DispatchCase& layer) {
  const Spread spread = expected_spread(layer.routing, layer.rank_of_expert, layer.node_of_rank);
  const auto busiest = std::ranges::max_element(spread.copies);
  const auto ranks = static_cast<double>(layer.node_of_rank.size());
  return {
      .rows = *busiest * static_cast<double>(layer.tokens) * ranks,
      .experts = std::ranges::count(layer.rank_of_expert, static_cast<int>(busiest - spread.copies.begin()))};
}

/// Rows of one expert, of `share` of the tokens.
std::int64_t rows_per_expert(const BusiestRank& rank, double share) {
  const std::int64_t rows = std::llround(rank.rows * share / static_cast<double>(rank.experts));
  return (std::max<std::int64_t>(rows, 1) + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

/// Each chunk's share of the tokens.
std::vector<double> shares_of(const ExpertLayer& layer, int chunks) {
  schedule::EpPlan plan = layer.plan;
  plan.chunking = {.chunks = chunks};
  plan.taper();
  const std::int64_t tokens = std::max<std::int64_t>(layer.dispatch.tokens, 1);
  const auto bounds = schedule::chunk_bounds(tokens, plan.chunking);
  std::vector<double> shares;
  for (std::size_t c = 0; c + 1 < bounds.size(); ++c) {
    shares.push_back(static_cast<double>(bounds[c + 1] - bounds[c]) / static_cast<double>(tokens));
  }
  return shares;
}

class ChunkCalculation {
 public:
  ChunkCalculation(const Cluster& cluster, const ExpertLayer& layer)
      : cluster_(cluster), layer_(layer), rank_(busiest_rank(layer.dispatch)) {
    require(layer.ffn >= 1, "an expert layer of FFN size {}; sizes start at 1", layer.ffn);
    require(!cluster.devices.empty(), "the cluster {} has no device", cluster.name);
  }

  [[nodiscard]] LayerCost cost(int chunks) const {
    const std::vector<double> shares = shares_of(layer_, chunks);
    ChunkTimes forward;
    ChunkTimes backward;
    for (const double share : shares) {
      const double wire = exchange_seconds(share);
      for (ChunkTimes* times : {&forward, &backward}) {
        times->out.push_back(wire);
        times->back.push_back(wire);
      }
      forward.experts.push_back(products(share) + rows_in_memory(share));
      // Input gradients are as many products as forward; what is computed again comes on top.
      const double again = layer_.plan.recompute == MoeRecompute::full ? gate_up(share) : 0.0;
      backward.experts.push_back(products(share) + again + rows_in_memory(share));
    }
    backward.behind = weight_gradients(shares);
    const double shared = shared_experts();
    forward.first_cover = forward.last_cover = shared / 2.0;
    backward.first_cover = backward.last_cover = shared;
    const Overlap there = overlap(layer_.plan.pipeline, layer_.plan.window, forward);
    const Overlap home = overlap(layer_.plan.pipeline, layer_.plan.window, backward);
    return {.seconds = there.seconds + home.seconds, .exposed = there.exposed + home.exposed};
  }

 private:
  [[nodiscard]] const Device& device() const { return cluster_.devices.front(); }
  [[nodiscard]] double hidden() const { return static_cast<double>(layer_.dispatch.hidden); }
  [[nodiscard]] double ffn() const { return static_cast<double>(layer_.ffn); }
  [[nodiscard]] double experts() const { return static_cast<double>(rank_.experts); }
  [[nodiscard]] double element() const { return static_cast<double>(size_of(layer_.dtype)); }

  [[nodiscard]] double exchange_seconds(double share) const {
    DispatchCase chunk = layer_.dispatch;
    chunk.chunks = 1;
    chunk.tokens = std::llround(share * static_cast<double>(chunk.tokens));
    return chunk.node_of_rank.size() > 1
               ? dispatch_cost(cluster_, chunk, layer_.plan.dispatcher).seconds / 2.0
               : 0.0;
  }

  [[nodiscard]] double product(std::int64_t m, std::int64_t n, std::int64_t k) const {
    const double weights = static_cast<double>(n) * static_cast<double>(k) * element();
    return experts() *
           (matmul_seconds(device(), layer_.dtype, m, n, k) + weights / device().memory_read_bytes_per_s);
  }
  [[nodiscard]] double gate_up(double share) const {
    return product(rows_per_expert(rank_, share), 2 * layer_.ffn, layer_.dispatch.hidden);
  }
  [[nodiscard]] double products(double share) const {
    return gate_up(share) + product(rows_per_expert(rank_, share), layer_.dispatch.hidden, layer_.ffn);
  }
  /// Of all tokens, forward; in backward input and weight gradients are as much each.
  [[nodiscard]] double shared_experts() const {
    const auto seconds = [&](std::int64_t n, std::int64_t k) {
      return matmul_seconds(device(), layer_.dtype, layer_.dispatch.tokens, n, k);
    };
    return seconds(2 * layer_.shared_ffn, layer_.dispatch.hidden) +
           seconds(layer_.dispatch.hidden, layer_.shared_ffn);
  }
  /// Rows gathered, activated, and added up.
  [[nodiscard]] double rows_in_memory(double share) const {
    return rank_.rows * share * (3.0 * hidden() + 3.0 * ffn()) * element() / device().memory_copy_bytes_per_s;
  }

  /// One product over several chunks where buffers allow it; each reads and writes all gradients, in fp32.
  [[nodiscard]] std::vector<double> weight_gradients(const std::vector<double>& shares) const {
    const std::size_t n = shares.size();
    const bool each =
        layer_.plan.recompute != MoeRecompute::none || layer_.plan.pipeline != ChunkPipeline::continuous;
    std::vector<double> seconds(n, 0.0);
    double share = 0.0;
    for (std::size_t c = 0; c < n; ++c) {
      share += shares[c];
      if (each || c + 1 == n || (n >= 4 && c + 1 == n / 2)) {
        const double gradients = experts() * 3.0 * hidden() * ffn() * 4.0;
        seconds[c] = products(share) + 2.0 * gradients / device().memory_copy_bytes_per_s;
        share = 0.0;
      }
    }
    return seconds;
  }

  const Cluster& cluster_;
  const ExpertLayer& layer_;
  BusiestRank rank_;
};

}  // namespace

std::vector<ProductSize> products_of(const ExpertLayer& layer) {
  const BusiestRank rank = busiest_rank(layer.dispatch);
  std::vector<ProductSize> sizes;
  for (const int chunks : kChunkCounts) {
    for (const double share : shares_of(layer, chunks)) {
      const std::int64_t m = rows_per_expert(rank, share);
      for (const ProductSize size : {ProductSize{m, 2 * layer.ffn, layer.dispatch.hidden},
                                     ProductSize{m, layer.dispatch.hidden, layer.ffn}}) {
        if (std::ranges::find(sizes, size) == sizes.end()) {
          sizes.push_back(size);
        }
      }
    }
  }
  return sizes;
}

LayerCost layer_cost(const Cluster& cluster, const ExpertLayer& layer, int chunks) {
  return ChunkCalculation(cluster, layer).cost(chunks);
}

ChunkChoice choose_chunks(const Cluster& cluster, const ExpertLayer& layer) {
  const ChunkCalculation calculation(cluster, layer);
  std::vector<ChunkChoice> choices;
  choices.reserve(kChunkCounts.size());
  for (const int chunks : kChunkCounts) {
    choices.push_back({.chunks = chunks, .cost = calculation.cost(chunks)});
  }
  const auto seconds = [](const ChunkChoice& choice) { return choice.cost.seconds; };
  const double least = std::ranges::min(choices, {}, seconds).cost.seconds;
  ChunkChoice chosen = *std::ranges::find_if(
      choices, [&](const ChunkChoice& choice) { return choice.cost.seconds <= (1.0 + kAsGood) * least; });
  chosen.reason = fmt::format("{}: {:.3g} ms a layer, {:.2g} ms of it exposed communication; against",
                              chosen.chunks, chosen.cost.seconds * 1e3, chosen.cost.exposed * 1e3);
  const char* separator = " ";
  for (const ChunkChoice& other : choices) {
    if (other.chunks != chosen.chunks) {
      chosen.reason += fmt::format("{}{:.3g} ms in {}", separator, other.cost.seconds * 1e3, other.chunks);
      separator = ", ";
    }
  }
  return chosen;
}

}  // namespace expedite::cost
