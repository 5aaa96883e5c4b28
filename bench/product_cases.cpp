#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/case_builders.h"
#include "bench/reference_kernels.h"
#include "expedite/kernels/cross_entropy.h"
#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/grouped_bias.h"
#include "expedite/kernels/grouped_matmul.h"
#include "expedite/kernels/matmul.h"

namespace expedite::bench {
namespace {

using reference::Matrix;

const std::vector<std::string_view> kProductDirections = {"forward", "input_grad", "weight_grad"};

/// Of a sum of `count` products of numbers in [-1, 1).
double sum_scale(std::int64_t count) {
  return std::sqrt(static_cast<double>(std::max<std::int64_t>(count, 1)));
}

double product_tolerance(DType dst) {
  return 2 * rounding(dst) + 2e-6;
}

kernels::MatmulOptions matmul_options(const CaseText& text) {
  kernels::MatmulOptions options;
  options.transpose_a = text.is("weight_grad") || text.is("tn") || text.is("tt");
  options.transpose_b = text.is("forward") && !text.is("nn") && !text.is("tn");
  options.accumulate = text.is("accumulate");
  return options;
}

KernelCase make_matmul(const CaseText& text) {
  const bool layout_said = std::ranges::any_of(text.flags, [](auto flag) { return flag.size() == 2; });
  require(text.is("forward") || !layout_said,
          "case '{}': {} has a layout of its own; say nn, nt, tn or tt without a direction", text.text,
          text.direction);
  const kernels::MatmulOptions options = matmul_options(text);
  const DType type = text.dtype;
  const DType dst_type = options.accumulate || text.is("weight_grad") ? DType::f32 : type;
  const std::int64_t m = text.sizes[0];
  const std::int64_t n = text.sizes[1];
  const std::int64_t k = text.sizes[2];
  return make_case(matmul_limit(type), product_flops(m, n, k), [=](Operands& operands) -> PreparedKernel {
    const TensorView a = operands.values(type, options.transpose_a ? Shape{k, m} : Shape{m, k});
    const TensorView b = operands.values(type, options.transpose_b ? Shape{n, k} : Shape{k, n});
    const TensorView dst =
        options.accumulate ? operands.values(dst_type, {m, n}) : operands.zeros(dst_type, {m, n});
    const auto results = [=] {
      Matrix wanted = product(options.transpose_a ? transposed(doubles(a)) : doubles(a),
                              options.transpose_b ? doubles(b) : transposed(doubles(b)));
      if (options.accumulate) {
        wanted += doubles(dst);
      }
      return std::vector{result_in("dst", dst, std::move(wanted), product_tolerance(dst_type), sum_scale(k))};
    };
    return {[=] { kernels::matmul(a, b, dst, options); }, results};
  });
}

/// Rows over experts by Zipf's law: expert e takes a share of 1 / (e + 1).
std::vector<std::int64_t> zipf_counts(std::int64_t rows, std::int64_t experts) {
  double sum = 0.0;
  for (std::int64_t e = 0; e < experts; ++e) {
    sum += 1.0 / static_cast<double>(e + 1);
  }
  std::vector<std::int64_t> counts;
  for (std::int64_t e = 0; e < experts; ++e) {
    counts.push_back(static_cast<std::int64_t>(static_cast<double>(rows) / static_cast<double>(e + 1) / sum));
  }
  counts[0] += rows - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  return counts;
}

std::vector<std::int64_t> counts_of(const CaseText& text) {
  const std::int64_t rows = text.sizes[0];
  if (text.has("rows")) {
    std::vector<std::int64_t> counts = text.list("rows");
    const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    require(sum == rows, "case '{}': rows= sum to {}, but the sizes begin with {} rows", text.text, sum,
            rows);
    require(!text.has("E") || text.number("E") == std::ssize(counts),
            "case '{}': rows= are those of {} experts, but E={}", text.text, counts.size(), text.number("E"));
    require(!text.is("even") && !text.is("skewed") && !text.is("one"),
            "case '{}': rows= already says how rows lie; leave out even, skewed or one", text.text);
    return counts;
  }
  const std::int64_t experts = text.number("E");
  if (text.is("skewed")) {
    return zipf_counts(rows, experts);
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(experts), 0);
  if (text.is("one")) {
    counts[0] = rows;
    return counts;
  }
  for (std::int64_t e = 0; e < experts; ++e) {
    counts[e] = rows / experts + (e < rows % experts ? 1 : 0);
  }
  return counts;
}

struct Grouped {
  std::vector<std::int64_t> counts;
  kernels::RowBlocks blocks;

  /// Random, zero where blocks are padded.
  [[nodiscard]] TensorView values(Operands& operands, DType type, std::int64_t columns) const {
    const TensorView x = operands.values(type, {blocks.total, columns});
    for (std::size_t e = 0; e < counts.size(); ++e) {
      kernels::fill_zero(x.slice(blocks.begin[e] + counts[e], blocks.rows[e] - counts[e]));
    }
    return x;
  }
  [[nodiscard]] std::vector<ConstTensorView> of(ConstTensorView x) const {
    return kernels::blocks_of(x, blocks);
  }
  [[nodiscard]] Matrix block(ConstTensorView x, std::size_t e) const {
    return doubles(x.slice(blocks.begin[e], blocks.rows[e]));
  }
};

/// x[e] · w[e]ᵀ for each expert; with `transpose`, x[e] · w[e].
Matrix grouped_product(const Grouped& groups, ConstTensorView x, ConstTensorView w, bool transpose) {
  Matrix result(groups.blocks.total, transpose ? w.size(2) : w.size(1));
  for (std::size_t e = 0; e < groups.counts.size(); ++e) {
    const Matrix weight = doubles(w[static_cast<std::int64_t>(e)]);
    const Matrix y = product(groups.block(x, e), transpose ? transposed(weight) : weight);
    std::ranges::copy(y.values, result.values.begin() + groups.blocks.begin[e] * result.columns);
  }
  return result;
}

/// dy[e]ᵀ · x[e] for each expert: [E, N * K].
Matrix grouped_weight_grad(const Grouped& groups, ConstTensorView dy, ConstTensorView x) {
  Matrix result(std::ssize(groups.counts), dy.size(1) * x.size(1));
  for (std::size_t e = 0; e < groups.counts.size(); ++e) {
    const Matrix dw = product(transposed(groups.block(dy, e)), transposed(groups.block(x, e)));
    std::ranges::copy(dw.values, result.values.begin() + static_cast<std::int64_t>(e) * result.columns);
  }
  return result;
}

PreparedKernel grouped_rows(const Grouped& groups, Operands& operands, const CaseText& text) {
  const std::int64_t n = text.sizes[1];
  const std::int64_t k = text.sizes[2];
  const bool input_grad = text.is("input_grad");
  const TensorView x = groups.values(operands, text.dtype, input_grad ? n : k);
  const TensorView w = operands.values(text.dtype, {std::ssize(groups.counts), n, k});
  const TensorView y = operands.zeros(text.dtype, {groups.blocks.total, input_grad ? k : n});
  const auto run = [=] {
    const std::vector<TensorView> into = kernels::blocks_of(y, groups.blocks);
    if (input_grad) {
      kernels::grouped_matmul_input_grad(groups.of(x), w, into);
    } else {
      kernels::grouped_matmul(groups.of(x), w, into);
    }
  };
  return {
      run, [=, type = text.dtype] {
        return std::vector{result_in(input_grad ? "dx" : "y", y, grouped_product(groups, x, w, input_grad),
                                     product_tolerance(type), sum_scale(input_grad ? n : k))};
      }};
}

PreparedKernel grouped_weights(const Grouped& groups, Operands& operands, const CaseText& text) {
  const bool accumulate = text.is("accumulate");
  const TensorView dy = groups.values(operands, text.dtype, text.sizes[1]);
  const TensorView x = groups.values(operands, text.dtype, text.sizes[2]);
  const TensorView dw =
      operands.values(DType::f32, {std::ssize(groups.counts), text.sizes[1], text.sizes[2]});
  return {[=] { kernels::grouped_matmul_weight_grad(groups.of(dy), groups.of(x), dw, accumulate); },
          [=, longest = std::ranges::max(groups.counts)] {
            Matrix wanted = grouped_weight_grad(groups, dy, x);
            if (accumulate) {
              wanted += doubles(dw);
            }
            return std::vector{
                result_in("dw", dw, std::move(wanted), product_tolerance(DType::f32), sum_scale(longest))};
          }};
}

KernelCase make_grouped_matmul(const CaseText& text) {
  const std::vector<std::int64_t> counts = counts_of(text);
  require(!text.is("accumulate") || text.is("weight_grad"),
          "case '{}': only weight_grad can accumulate; leave the word out", text.text);
  const Grouped groups{counts, kernels::row_blocks(counts)};
  return make_case(matmul_limit(text.dtype), product_flops(text.sizes[0], text.sizes[1], text.sizes[2]),
                   [=](Operands& operands) {
                     return text.is("weight_grad") ? grouped_weights(groups, operands, text)
                                                   : grouped_rows(groups, operands, text);
                   });
}

PreparedKernel prepare_grouped_bias(const Grouped& groups, Operands& operands, const CaseText& text) {
  const std::int64_t n = text.sizes[1];
  const bool weight_grad = text.is("weight_grad");
  const TensorView bias =
      operands.values(weight_grad ? DType::f32 : text.dtype, {std::ssize(groups.counts), n});
  const TensorView weights =
      text.is("weighted") ? operands.values(DType::f32, {groups.blocks.total}) : TensorView();
  const TensorView rows = groups.values(operands, text.dtype, n);
  const auto blocks_of_weights = text.is("weighted") ? groups.of(weights) : std::vector<ConstTensorView>();
  const auto run = [=] {
    if (weight_grad) {
      kernels::grouped_bias_weight_grad(groups.of(rows), blocks_of_weights, bias);
    } else {
      kernels::grouped_bias(bias, blocks_of_weights, kernels::blocks_of(rows, groups.blocks));
    }
  };
  const auto results = [=, type = text.dtype, longest = std::ranges::max(groups.counts)] {
    Matrix wanted_bias = doubles(bias);
    Matrix wanted_rows = doubles(rows);
    for (std::size_t e = 0; e < groups.counts.size(); ++e) {
      const std::int64_t begin = groups.blocks.begin[e];
      for (std::int64_t row = begin; row < begin + groups.blocks.rows[e]; ++row) {
        const double weight = weights.data() == nullptr ? 1.0 : weights.as<float>()[row];
        for (std::int64_t i = 0; i < n; ++i) {
          double& of_bias = wanted_bias(static_cast<std::int64_t>(e), i);
          double& of_rows = wanted_rows(row, i);
          (weight_grad ? of_bias : of_rows) += weight * (weight_grad ? of_rows : of_bias);
        }
      }
    }
    return std::vector{weight_grad
                           ? result_in("dbias", bias, std::move(wanted_bias), 2e-6, sum_scale(longest))
                           : result_in("y", rows, std::move(wanted_rows), rounding(type) + 1e-6, 1.0)};
  };
  return {run, results};
}

/// Rows are read and, going forward, written.
KernelCase make_grouped_bias(const CaseText& text) {
  const std::vector<std::int64_t> counts = counts_of(text);
  const Grouped groups{counts, kernels::row_blocks(counts)};
  const auto rows = static_cast<double>(text.sizes[0]);
  const double bytes = rows * static_cast<double>(text.sizes[1] * size_of(text.dtype));
  const double work = (text.is("weight_grad") ? 1 : 2) * bytes + (text.is("weighted") ? 4.0 * rows : 0.0);
  return make_case(Limit::copy, work,
                   [=](Operands& operands) { return prepare_grouped_bias(groups, operands, text); });
}

/// Three products: logits, and the gradients of hidden states and weight.
KernelCase make_cross_entropy(const CaseText& text) {
  const std::int64_t tokens = text.sizes[0];
  const std::int64_t width = text.sizes[1];
  const std::int64_t vocabulary = text.sizes[2];
  require(vocabulary > 0 || tokens == 0, "case '{}': {} targets of no vocabulary; V is 1 or more", text.text,
          tokens);
  const DType type = text.dtype;
  const double work = 3 * product_flops(tokens, vocabulary, width);
  return make_case(matmul_limit(type), work, [=](Operands& operands) -> PreparedKernel {
    const TensorView hidden = operands.values(type, {tokens, width});
    const TensorView weight = operands.values(type, {vocabulary, width});
    const float scale = 1.0F / static_cast<float>(std::max<std::int64_t>(tokens, 1));
    const kernels::CrossEntropyGradients gradients{scale, operands.zeros(type, {tokens, width}),
                                                   operands.zeros(DType::f32, {vocabulary, width})};
    std::vector<std::int32_t> targets;
    for (std::int64_t t = 0; t < tokens; ++t) {
      targets.push_back(static_cast<std::int32_t>(t % vocabulary));
    }
    MemoryPool* pool = &operands.pool();
    const auto loss = std::make_shared<double>(0.0);
    const auto results = [=] {
      CrossEntropy wanted = cross_entropy(doubles(hidden), doubles(weight), targets, scale);
      Matrix wanted_loss(1, 1);
      wanted_loss(0, 0) = wanted.loss;
      wanted.dweight += doubles(gradients.dweight);
      const auto got_loss = [loss] {
        Matrix got(1, 1);
        got(0, 0) = *loss;
        return got;
      };
      const double relative = type == DType::bf16 ? 0.02 : 1e-5;
      return std::vector<KernelResult>{
          {"loss", std::move(wanted_loss), got_loss, 1e-6, static_cast<double>(tokens)},
          result_in("dhidden", gradients.dhidden, std::move(wanted.dhidden), relative, scale),
          result_in("dweight", gradients.dweight, std::move(wanted.dweight), relative, scale)};
    };
    return {[=] { *loss = kernels::linear_cross_entropy(hidden, weight, targets, &gradients, *pool); },
            results};
  });
}

}  // namespace

std::vector<CaseBuilder> product_builders() {
  const CaseKey experts{.name = "E", .standard = 8, .meaning = "experts"};
  const CaseKey rows{.name = "rows", .least = 0, .list = true, .meaning = "rows of each expert"};
  return {{{"matmul",
            kProductDirections,
            kFloats,
            "MxNxK",
            {},
            {{"nt", "nn", "tn", "tt"}, {"accumulate"}},
            "matmul weight_grad bf16 2048x1024x1024 accumulate"},
           make_matmul},
          {{"grouped_matmul",
            kProductDirections,
            kFloats,
            "ROWSxNxK",
            {experts, rows},
            {{"even", "skewed", "one"}, {"accumulate"}},
            "grouped_matmul bf16 8192x1024x1024 E=8 skewed"},
           make_grouped_matmul},
          {{"grouped_bias",
            {"forward", "weight_grad"},
            kFloats,
            "ROWSxN",
            {experts, rows},
            {{"even", "skewed", "one"}, {"weighted"}},
            "grouped_bias bf16 65536x1024 E=32 weighted"},
           make_grouped_bias},
          {{"cross_entropy", {}, kFloats, "TxHxV", {}, {}, "cross_entropy bf16 1024x1024x16384"},
           make_cross_entropy}};
}

}  // namespace expedite::bench
