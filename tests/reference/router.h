// The router of an MoE layer: scores, the choice of k experts per token, and their gate weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/reference/matrix.h"

namespace expedite::reference {

struct RouterShape {
  std::int64_t top_k = 1;
  bool sigmoid = false;         // scores are sigmoids of the logits, else their softmax
  bool renormalize = true;      // the k weights of a token are divided by their sum
  double scaling_factor = 1.0;  // multiplies the weights, after that
  std::int64_t groups = 1;      // neighbouring experts, as many in each
  std::int64_t top_groups = 1;  // a token chooses from so many groups
  // A group is judged by its best expert, else by the sum of its two best, of which it then needs 2.
  bool group_by_best = false;
};

struct Routing {
  Matrix logits;                                   // [T, E]
  Matrix scores;                                   // [T, E]
  std::vector<std::vector<std::int64_t>> experts;  // [T][k], best first; of equals the lower number
  Matrix weights;                                  // [T, k]
};

/// What a token chooses its experts by, [E], and how clear the choice of groups before that was: the distance
/// between the worst group chosen and the best not chosen (infinite where all are). The biased scores; with
/// groups, those of a group that was not chosen count as 0 (DeepSeek-V3), or as minus infinity where groups
/// are judged by their best (DeepSeek-V2). Of equal groups the lower number wins.
struct Preferences {
  std::vector<double> values;
  double group_margin;
};
[[nodiscard]] Preferences preferences(std::span<const double> scores, std::span<const double> selection_bias,
                                      const RouterShape& shape);

/// selection_bias: [E] or empty; added to the scores for the choice only.
[[nodiscard]] Routing route(Matrix logits, std::span<const double> selection_bias, const RouterShape& shape);

/// d scores from d weights; the choice has no gradient.
[[nodiscard]] Matrix weights_backward(const Matrix& dweights, const Routing& routing,
                                      const RouterShape& shape);

/// d logits from d scores.
[[nodiscard]] Matrix scores_backward(const Matrix& dscores, const Routing& routing, const RouterShape& shape);

}  // namespace expedite::reference
