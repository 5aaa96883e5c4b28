#include "expedite/plan/pipeline_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "expedite/plan/step_schedules.h"

namespace expedite::plan {
namespace {

std::string repeated(char letter, std::int32_t count) {
  constexpr std::int32_t kSpelt = 3;
  return count <= kSpelt ? std::string(static_cast<std::size_t>(count), letter)
                         : fmt::format("{}*{}", letter, count);
}

}  // namespace

bool PipelineSplit::even() const {
  return std::ranges::adjacent_find(layers, std::not_equal_to<>{}) == layers.end();
}

bool PipelineSplit::has_part_without_layers() const {
  return std::ranges::find(layers, 0) != layers.end();
}

std::int32_t PipelineSplit::most_layers() const {
  return std::ranges::max(layers);
}

PipelineSplit pipeline_split(const CostContext& context, const Strategy& strategy) {
  const ModelConfig& model = context.model();
  PipelineSplit split{.stages = strategy.pp,
                      .virtual_stages = strategy.vpp,
                      .layers = {},
                      .prediction = static_cast<std::int32_t>(model.prediction_layers)};
  const std::vector<int> bounds = layer_bounds(context, strategy, piece_times(context, strategy));
  // Items are the embedding, the layers, and then what stays on the last part.
  const auto layers = static_cast<int>(model.layers);
  const auto before = [&](int bound) { return std::clamp(bound - 1, 0, layers); };
  for (std::size_t part = 0; part + 1 < bounds.size(); ++part) {
    split.layers.push_back(before(bounds[part + 1]) - before(bounds[part]));
  }
  return split;
}

std::string layout_of(const PipelineSplit& split) {
  std::string layout;
  const std::size_t last = split.layers.size() - 1;
  for (std::size_t part = 0; part < last;) {
    // Parts alike are written once; the first has the embedding.
    std::size_t end = part + 1;
    while (part > 0 && end < last && split.layers[end] == split.layers[part]) {
      ++end;
    }
    const std::string text = (part == 0 ? "E" : "") + repeated('t', split.layers[part]) + "|";
    layout += end - part > 1 ? fmt::format("({})*{}", text, end - part) : text;
    part = end;
  }
  return layout + (last == 0 ? "E" : "") + repeated('t', split.layers[last]) +
         repeated('m', split.prediction) + "L";
}

}  // namespace expedite::plan
