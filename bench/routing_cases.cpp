#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "bench/case_builders.h"
#include "expedite/kernels/embedding.h"
#include "expedite/kernels/router.h"
#include "expedite/kernels/rows.h"
#include "tests/reference/router.h"

namespace expedite::bench {
namespace {

using reference::Matrix;

/// Rows of tokens in expert order: each expert takes the tokens that chose it, in their order.
struct Routes {
  std::vector<kernels::RowRef> token_of_row;
  std::vector<kernels::RowRef> row_of_choice;  // [T, k]
};

Routes random_routes(std::int64_t tokens, std::int64_t top_k, std::int64_t experts) {
  std::mt19937 generator(1);
  std::vector<std::vector<std::int64_t>> chosen(static_cast<std::size_t>(experts));
  std::vector<std::int64_t> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::shuffle(order.begin(), order.end(), generator);
    for (std::int64_t j = 0; j < top_k; ++j) {
      chosen[order[j]].push_back(t * top_k + j);
    }
  }
  Routes routes;
  routes.row_of_choice.resize(static_cast<std::size_t>(tokens * top_k));
  for (const auto& choices : chosen) {
    for (const std::int64_t choice : choices) {
      routes.row_of_choice[choice] = {0, static_cast<std::int32_t>(routes.token_of_row.size())};
      routes.token_of_row.push_back({0, static_cast<std::int32_t>(choice / top_k)});
    }
  }
  return routes;
}

struct RouteSizes {
  std::int64_t tokens, width, experts, top_k;
  [[nodiscard]] std::int64_t rows() const { return tokens * top_k; }
  [[nodiscard]] double ref_bytes() const {
    return static_cast<double>(sizeof(kernels::RowRef)) * static_cast<double>(rows());
  }
};

RouteSizes route_sizes(const CaseText& text) {
  const RouteSizes sizes{text.sizes[0], text.sizes[1], text.number("E"), text.number("k")};
  require(sizes.top_k <= sizes.experts, "case '{}': k={} of E={}: a token can choose each expert once",
          text.text, sizes.top_k, sizes.experts);
  return sizes;
}

/// The sum of rows refs[i * width], ... of x, for each row i of the result.
Matrix summed(const Matrix& x, const std::vector<kernels::RowRef>& refs, std::int64_t width, Matrix onto) {
  for (std::int64_t i = 0; i < onto.rows; ++i) {
    for (std::int64_t j = 0; j < width; ++j) {
      for (std::int64_t c = 0; c < onto.columns; ++c) {
        onto(i, c) += x(refs[i * width + j].row, c);
      }
    }
  }
  return onto;
}

/// Each row is read and written: tokens are more than the caches keep from one expert to the next.
KernelCase make_permute(const CaseText& text) {
  const RouteSizes sizes = route_sizes(text);
  const DType type = text.dtype;
  const auto row_bytes = static_cast<double>(sizes.rows() * sizes.width * size_of(type));
  return make_case(Limit::copy, 2 * row_bytes + sizes.ref_bytes(), [=](Operands& operands) -> PreparedKernel {
    const auto refs = random_routes(sizes.tokens, sizes.top_k, sizes.experts).token_of_row;
    const ConstTensorView src = operands.values(type, {sizes.tokens, sizes.width});
    const TensorView dst = operands.zeros(type, {sizes.rows(), sizes.width});
    return {[=] {
              kernels::gather_rows({&src, 1}, refs, dst);
            },
            [=] {
              Matrix wanted = summed(doubles(src), refs, 1, Matrix(sizes.rows(), sizes.width));
              return std::vector{result_in("dst", dst, std::move(wanted), 0.0, 1.0)};
            }};
  });
}

KernelCase make_unpermute(const CaseText& text) {
  const RouteSizes sizes = route_sizes(text);
  const DType type = text.dtype;
  const bool onto = text.is("residual");
  const auto token_bytes = static_cast<double>(sizes.tokens * sizes.width * size_of(type));
  const double work =
      (onto ? 2 : 1) * token_bytes + static_cast<double>(sizes.top_k) * token_bytes + sizes.ref_bytes();
  return make_case(Limit::copy, work, [=](Operands& operands) -> PreparedKernel {
    const auto refs = random_routes(sizes.tokens, sizes.top_k, sizes.experts).row_of_choice;
    const ConstTensorView src = operands.values(type, {sizes.rows(), sizes.width});
    const TensorView residual = onto ? operands.values(type, {sizes.tokens, sizes.width}) : TensorView();
    const TensorView dst = operands.zeros(type, {sizes.tokens, sizes.width});
    return {[=] {
              kernels::sum_rows({&src, 1}, refs, residual, dst);
            },
            [=] {
              Matrix wanted = summed(doubles(src), refs, sizes.top_k,
                                     onto ? doubles(residual) : Matrix(sizes.tokens, sizes.width));
              return std::vector{result_in("dst", dst, std::move(wanted), rounding(type) + 1e-6, 1.0)};
            }};
  });
}

KernelCase make_embedding(const CaseText& text) {
  const std::int64_t tokens = text.sizes[0];
  const std::int64_t width = text.sizes[1];
  const std::int64_t vocabulary = text.sizes[2];
  require(vocabulary > 0 || tokens == 0, "case '{}': {} tokens of no vocabulary; V is 1 or more", text.text,
          tokens);
  const DType type = text.dtype;
  const bool backward = text.is("backward");
  const double each =
      backward ? 8.0 + static_cast<double>(size_of(type)) : 2.0 * static_cast<double>(size_of(type));
  const double work = static_cast<double>(tokens * width) * each + 4.0 * static_cast<double>(tokens);
  return make_case(Limit::copy, work, [=](Operands& operands) -> PreparedKernel {
    std::mt19937 generator(1);
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < tokens; ++t) {
      ids.push_back(static_cast<std::int32_t>(generator() % static_cast<std::uint64_t>(vocabulary)));
    }
    const TensorView rows = operands.values(type, {tokens, width});
    const TensorView table = operands.values(backward ? DType::f32 : type, {vocabulary, width});
    if (backward) {
      return {[=] { kernels::embedding_backward(rows, ids, table); },
              [=] {
                Matrix wanted = doubles(table);
                const Matrix dy = doubles(rows);
                for (std::int64_t t = 0; t < tokens; ++t) {
                  for (std::int64_t c = 0; c < width; ++c) {
                    wanted(ids[t], c) += dy(t, c);
                  }
                }
                return std::vector{result_in("dtable", table, std::move(wanted), 1e-5, 1.0)};
              }};
    }
    return {[=] { kernels::embedding(table, ids, rows); },
            [=] {
              Matrix wanted(tokens, width);
              const Matrix from = doubles(table);
              for (std::int64_t t = 0; t < tokens; ++t) {
                std::ranges::copy(from.row(ids[t]), wanted.row(t).begin());
              }
              return std::vector{result_in("dst", rows, std::move(wanted), 0.0, 1.0)};
            }};
  });
}

kernels::RouterOptions router_options(const CaseText& text) {
  const std::int64_t experts = text.sizes[1];
  kernels::RouterOptions options{
      .top_k = text.number("k"),
      .scoring = text.is("sigmoid") ? kernels::Scoring::sigmoid : kernels::Scoring::softmax,
      .renormalize = !text.is("unnormalized"),
      .groups = text.number("groups")};
  options.top_groups = text.has("top_groups") ? text.number("top_groups") : options.groups;
  require(
      experts > 0 && experts % options.groups == 0 && (options.groups == 1 || experts / options.groups > 1),
      "case '{}': groups={} do not divide {} experts into parts of 2 or more", text.text, options.groups,
      experts);
  require(options.top_groups <= options.groups, "case '{}': top_groups={} of groups={}", text.text,
          options.top_groups, options.groups);
  require(options.top_k <= experts / options.groups * options.top_groups,
          "case '{}': k={} of the {} experts that a token can choose from", text.text, options.top_k,
          experts / options.groups * options.top_groups);
  return options;
}

reference::RouterShape router_shape(const kernels::RouterOptions& options) {
  return {.top_k = options.top_k,
          .sigmoid = options.scoring == kernels::Scoring::sigmoid,
          .renormalize = options.renormalize,
          .scaling_factor = options.scaling_factor,
          .groups = options.groups,
          .top_groups = options.top_groups};
}

struct RouterTensors {
  TensorView logits, bias, scores, experts, weights;
  [[nodiscard]] std::span<const float> bias_span() const {
    return kernels_bias() ? bias.span<const float>() : std::span<const float>();
  }
  [[nodiscard]] std::vector<double> bias_doubles() const {
    return kernels_bias() ? doubles(bias).values : std::vector<double>();
  }
  [[nodiscard]] bool kernels_bias() const { return bias.data() != nullptr; }
};

/// Tokens whose choice hangs on the last bits of f32: there the kernel may choose another expert.
std::vector<bool> unclear_tokens(const reference::Routing& routing, std::span<const double> bias,
                                 const reference::RouterShape& shape) {
  constexpr double kClear = 1e-6;
  std::vector<bool> unclear;
  for (std::int64_t t = 0; t < routing.scores.rows; ++t) {
    reference::Preferences prefer = reference::preferences(routing.scores.row(t), bias, shape);
    bool close = prefer.group_margin < kClear;
    std::ranges::sort(prefer.values, std::greater<>());
    for (std::int64_t j = 0; j < shape.top_k && j + 1 < std::ssize(prefer.values); ++j) {
      close = close || prefer.values[j] - prefer.values[j + 1] < kClear;
    }
    unclear.push_back(close);
  }
  return unclear;
}

/// The rows of the tokens that are clear; the others are zero.
Matrix of_clear(Matrix x, const std::vector<bool>& unclear) {
  for (std::int64_t t = 0; t < x.rows; ++t) {
    if (unclear[t]) {
      std::ranges::fill(x.row(t), 0.0);
    }
  }
  return x;
}

Matrix matrix_of(const std::vector<std::vector<std::int64_t>>& experts, std::int64_t top_k) {
  Matrix result(std::ssize(experts), top_k);
  for (std::int64_t t = 0; t < result.rows; ++t) {
    std::ranges::copy(experts[t], result.row(t).begin());
  }
  return result;
}

Matrix matrix_of(ConstTensorView experts) {
  Matrix result(experts.rows(), experts.columns());
  for (std::int64_t t = 0; t < result.rows; ++t) {
    std::copy_n(experts.row<std::int32_t>(t), result.columns, result.row(t).begin());
  }
  return result;
}

std::vector<KernelResult> router_results(const RouterTensors& x, const kernels::RouterOptions& options) {
  const reference::RouterShape shape = router_shape(options);
  const std::vector<double> bias = x.bias_doubles();
  reference::Routing wanted = reference::route(doubles(x.logits), bias, shape);
  const std::vector<bool> unclear = unclear_tokens(wanted, bias, shape);
  return {result_in("scores", x.scores, wanted.scores, 2e-6, 0.0),
          {"experts", of_clear(matrix_of(wanted.experts, shape.top_k), unclear),
           [=] { return of_clear(matrix_of(x.experts), unclear); }, 0.0, 1.0},
          {"weights", of_clear(wanted.weights, unclear),
           [=] { return of_clear(doubles(x.weights), unclear); }, 4e-6, 0.0}};
}

KernelCase make_router(const CaseText& text) {
  const kernels::RouterOptions options = router_options(text);
  const std::int64_t tokens = text.sizes[0];
  const std::int64_t experts = text.sizes[1];
  const bool backward = text.is("backward");
  const bool biased = text.is("bias");
  // Logits or gradients of logits, and scores; experts and weights.
  const double work =
      8.0 * static_cast<double>(tokens * experts) + 8.0 * static_cast<double>(tokens * options.top_k);
  return make_case(Limit::copy, work, [=](Operands& operands) -> PreparedKernel {
    const RouterTensors x{operands.values(DType::f32, {tokens, experts}),
                          biased ? operands.values(DType::f32, {experts}) : TensorView(),
                          operands.zeros(DType::f32, {tokens, experts}),
                          operands.zeros(DType::i32, {tokens, options.top_k}),
                          operands.zeros(DType::f32, {tokens, options.top_k})};
    const auto forward = [=] {
      kernels::route(x.logits, x.bias_span(), options, x.scores, x.experts, x.weights);
    };
    if (!backward) {
      return {forward, [=] { return router_results(x, options); }};
    }
    forward();
    const TensorView dweights = operands.values(DType::f32, {tokens, options.top_k});
    const TensorView dlogits = operands.zeros(DType::f32, {tokens, experts});
    return {
        [=] { kernels::route_backward(dweights, x.scores, x.experts, options, dlogits); },
        [=] {
          const reference::RouterShape shape = router_shape(options);
          const reference::Routing routing = reference::route(doubles(x.logits), x.bias_doubles(), shape);
          const auto unclear = unclear_tokens(routing, x.bias_doubles(), shape);
          const Matrix dscores = reference::weights_backward(doubles(dweights), routing, shape);
          Matrix wanted = of_clear(reference::scores_backward(dscores, routing, shape), unclear);
          return std::vector<KernelResult>{
              {"dlogits", std::move(wanted), [=] { return of_clear(doubles(dlogits), unclear); }, 4e-6, 1.0}};
        }};
  });
}

}  // namespace

std::vector<CaseBuilder> routing_builders() {
  const CaseKey experts{.name = "E", .standard = 16, .meaning = "experts"};
  const CaseKey top_k{.name = "k", .standard = 4, .meaning = "experts per token"};
  return {{{"router",
            kDirections,
            {DType::f32},
            "TxE",
            {top_k,
             {.name = "groups", .standard = 1, .meaning = "of neighbouring experts"},
             {.name = "top_groups", .meaning = "groups that a token chooses from; else all"}},
            {{"softmax", "sigmoid"}, {"unnormalized"}, {"bias"}},
            "router f32 8192x64 k=8 groups=8 top_groups=4 sigmoid bias"},
           make_router},
          {{"permute", {}, kFloats, "TxH", {experts, top_k}, {}, "permute bf16 32768x1024 E=16 k=4"},
           make_permute},
          {{"unpermute",
            {},
            kFloats,
            "TxH",
            {experts, top_k},
            {{"residual"}},
            "unpermute bf16 32768x1024 E=16 k=4 residual"},
           make_unpermute},
          {{"embedding", kDirections, kFloats, "TxHxV", {}, {}, "embedding backward bf16 8192x1024x32768"},
           make_embedding}};
}

}  // namespace expedite::bench
