#include "tests/reference/separate_experts.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "expedite/hf/names.h"

namespace expedite::reference {
namespace {

using hf::ParameterNames;

// A matrix of one expert, and where its elements are in the tensor of all.
struct Piece {
  std::string name;
  std::string fused;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t offset;
  std::int64_t row_stride;
  std::int64_t column_stride;

  [[nodiscard]] std::int64_t index(std::int64_t row, std::int64_t column) const {
    return offset + row * row_stride + column * column_stride;
  }
};

std::string bias_name(const std::string& weight) {
  return weight.substr(0, weight.rfind('.')) + ".bias";
}

std::vector<Piece> pieces(const ModelConfig& config) {
  const hf::ParameterNames names(config.family);
  if (!names.fused_experts()) {
    return {};
  }
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t ffn = config.moe_intermediate_size;
  std::vector<Piece> result;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string inner =
        hf::ParameterNames::fused_experts_gate_up(layer);  // [E, H, 2 F], gate and up by turns
    const std::string inner_bias = hf::ParameterNames::fused_experts_gate_up_bias(layer);  // [E, 2 F]
    const std::string outer = hf::ParameterNames::fused_experts_down(layer);               // [E, F, H]
    const std::string outer_bias = hf::ParameterNames::fused_experts_down_bias(layer);     // [E, H]
    for (std::int64_t e = 0; config.sparse[layer] && e < config.experts; ++e) {
      const std::string gate = names.expert_gate(layer, e);
      const std::string up = names.expert_up(layer, e);
      const std::string down = names.expert_down(layer, e);
      const std::int64_t matrix = e * hidden * 2 * ffn;
      const std::int64_t row = e * 2 * ffn;
      result.push_back({gate, inner, ffn, hidden, matrix, 2, 2 * ffn});
      result.push_back({up, inner, ffn, hidden, matrix + 1, 2, 2 * ffn});
      result.push_back({bias_name(gate), inner_bias, ffn, 1, row, 2, 0});
      result.push_back({bias_name(up), inner_bias, ffn, 1, row + 1, 2, 0});
      result.push_back({down, outer, hidden, ffn, e * ffn * hidden, 1, hidden});
      result.push_back({bias_name(down), outer_bias, hidden, 1, e * hidden, 1, 0});
    }
  }
  return result;
}

}  // namespace

Parameters separate_experts(const ModelConfig& config, Parameters parameters) {
  const std::vector<Piece> all = pieces(config);
  for (const Piece& piece : all) {
    const std::vector<double>& fused = parameters.at(piece.fused);
    std::vector<double>& values = parameters[piece.name];
    for (std::int64_t row = 0; row < piece.rows; ++row) {
      for (std::int64_t column = 0; column < piece.columns; ++column) {
        values.push_back(fused[piece.index(row, column)]);
      }
    }
  }
  for (const Piece& piece : all) {
    parameters.erase(piece.fused);
  }
  return parameters;
}

Parameters fuse_experts(const ModelConfig& config, Parameters parameters) {
  for (const Piece& piece : pieces(config)) {
    const std::vector<double>& values = parameters.at(piece.name);
    std::vector<double>& fused = parameters[piece.fused];
    for (std::int64_t row = 0; row < piece.rows; ++row) {
      for (std::int64_t column = 0; column < piece.columns; ++column) {
        const auto index = static_cast<std::size_t>(piece.index(row, column));
        fused.resize(std::max(fused.size(), index + 1));
        fused[index] = values[row * piece.columns + column];
      }
    }
    parameters.erase(piece.name);
  }
  return parameters;
}

}  // namespace expedite::reference
