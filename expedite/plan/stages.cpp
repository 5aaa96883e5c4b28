#include "expedite/plan/stages.h"

#include <algorithm>

#include "expedite/base/error.h"

namespace expedite::plan {
namespace {

double cost_of(const PieceCosts& costs, architecture::LayerKind kind) {
  return kind == architecture::LayerKind::dense ? costs.dense : costs.moe;
}

/// Fills stages up to `limit` from the first on; false when layers are left over. The last stage keeps
/// `tail` free.
bool fill(const std::vector<LayerRun>& runs, const PieceCosts& costs, double tail, int stages, double limit,
          Stages& placed) {
  std::size_t run = 0;
  std::int32_t left = runs[0].count;
  for (int s = 0; s < stages; ++s) {
    placed.dense[s] = placed.moe[s] = 0;
    double room = limit - (s == 0 ? costs.embedding : 0.0) - (s == stages - 1 ? tail : 0.0);
    while (run < runs.size() && room > 0.0) {
      const double cost = cost_of(costs, runs[run].kind);
      const auto fit = static_cast<std::int32_t>(std::min<double>(left, room / cost + 1e-9));
      if (fit == 0) {
        break;
      }
      (runs[run].kind == architecture::LayerKind::dense ? placed.dense : placed.moe)[s] +=
          static_cast<std::int16_t>(fit);
      room -= fit * cost;
      left -= fit;
      if (left == 0 && ++run < runs.size()) {
        left = runs[run].count;
      }
    }
  }
  return run == runs.size();
}

void place_by_count(const std::vector<LayerRun>& runs, int stages, Stages& placed) {
  std::int32_t layers = 0;
  for (const LayerRun& run : runs) {
    layers += run.count;
  }
  std::size_t run = 0;
  std::int32_t left = runs[0].count;
  for (int s = 0; s < stages; ++s) {
    placed.dense[s] = placed.moe[s] = 0;
    // The stages in the middle take what does not divide, as they carry neither embedding nor head.
    const std::int32_t extra = layers % stages;
    const std::int32_t first = (stages - extra) / 2;
    std::int32_t wanted = layers / stages + (s >= first && s < first + extra ? 1 : 0);
    while (wanted > 0) {
      const std::int32_t taken = std::min(wanted, left);
      (runs[run].kind == architecture::LayerKind::dense ? placed.dense : placed.moe)[s] +=
          static_cast<std::int16_t>(taken);
      wanted -= taken;
      left -= taken;
      if (left == 0 && ++run < runs.size()) {
        left = runs[run].count;
      }
    }
  }
}

}  // namespace

std::vector<LayerRun> layer_runs(const ModelConfig& model) {
  std::vector<LayerRun> runs;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const architecture::LayerKind kind = model.kind(layer);
    if (runs.empty() || runs.back().kind != kind) {
      runs.push_back({kind, 0});
    }
    ++runs.back().count;
  }
  if (runs.size() > kMaxRuns) {
    runs.clear();
    const std::int64_t layers = model.layers;
    const std::int64_t dense = model.count(architecture::LayerKind::dense);
    for (std::int64_t part = 0; part < static_cast<std::int64_t>(kMaxRuns) / 2; ++part) {
      const auto share = [&](std::int64_t of) {
        constexpr auto kParts = static_cast<std::int64_t>(kMaxRuns) / 2;
        return static_cast<std::int32_t>(of * (part + 1) / kParts - of * part / kParts);
      };
      for (const LayerRun run : {LayerRun{architecture::LayerKind::dense, share(dense)},
                                 LayerRun{architecture::LayerKind::moe, share(layers - dense)}}) {
        if (run.count > 0) {
          runs.push_back(run);
        }
      }
    }
  }
  return runs;
}

void place_layers(const std::vector<LayerRun>& runs, std::int64_t mtp_layers, const PieceCosts& costs,
                  int stages, bool balanced, Stages& placed) {
  const double tail = costs.head + static_cast<double>(mtp_layers) * costs.prediction;
  double total = costs.embedding + tail;
  double largest = std::max(costs.embedding, tail);
  for (const LayerRun& run : runs) {
    total += run.count * cost_of(costs, run.kind);
    largest = std::max(largest, cost_of(costs, run.kind));
  }
  placed.count = stages;
  placed.mean = total / stages;
  if (balanced) {
    double low = std::max(largest, placed.mean);
    double high = placed.mean + 2.0 * largest;
    if (fill(runs, costs, tail, stages, low, placed)) {
      high = low;
    }
    while (high - low > 1e-3 * low) {
      const double middle = 0.5 * (low + high);
      (fill(runs, costs, tail, stages, middle, placed) ? high : low) = middle;
    }
    const bool all = fill(runs, costs, tail, stages, high, placed);
    require(all, "{} stages cannot hold the layers", stages);
  } else {
    place_by_count(runs, stages, placed);
  }
  placed.slowest = 0.0;
  for (int s = 0; s < stages; ++s) {
    const double seconds = placed.dense[s] * costs.dense + placed.moe[s] * costs.moe +
                           (s == 0 ? costs.embedding : 0.0) + (s == stages - 1 ? tail : 0.0);
    placed.slowest = std::max(placed.slowest, seconds);
  }
}

}  // namespace expedite::plan
