// How many chunks an MoE layer's tokens should be cut into: more hide more of the communication, and each
// costs smaller products and another pass over the experts' weights.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "expedite/cost/cluster.h"
#include "expedite/cost/dispatch_cost.h"
#include "expedite/schedule/ep_plan.h"

namespace expedite::cost {

/// One expert-parallel group's MoE layer with its experts' work.
struct ExpertLayer {
  DispatchCase dispatch;        // its `chunks` is not read
  std::int64_t ffn = 0;         // F of a routed expert
  std::int64_t shared_ffn = 0;  // of the shared experts together
  DType dtype = DType::bf16;
  schedule::EpPlan plan;  // its chunks are not read
};

inline constexpr std::array kChunkCounts = {1, 2, 3, 4, 6, 8};

/// The products [m, k] · [k, n] whose rates layer_cost reads, for every number of chunks of kChunkCounts.
struct ProductSize {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;

  bool operator==(const ProductSize&) const = default;
};
[[nodiscard]] std::vector<ProductSize> products_of(const ExpertLayer& layer);

/// Of forward and backward, in the given number of chunks.
struct LayerCost {
  double seconds = 0.0;
  double exposed = 0.0;
};

/// Chunks of the expected size; products at measured rates; memory traffic of rows and weights at the
/// measured bandwidth; exchanges as dispatch_cost has them; and of these what overlap() leaves. Throws Error
/// when the cluster lacks a rate.
[[nodiscard]] LayerCost layer_cost(const Cluster& cluster, const ExpertLayer& layer, int chunks);

struct ChunkChoice {
  int chunks = 1;
  LayerCost cost;
  std::string reason;  // one line
};

/// Of kChunkCounts the number of the least seconds; among those within a percent of it the smallest.
[[nodiscard]] ChunkChoice choose_chunks(const Cluster& cluster, const ExpertLayer& layer);

}  // namespace expedite::cost
