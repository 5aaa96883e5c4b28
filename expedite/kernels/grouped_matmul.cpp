#include "expedite/kernels/grouped_matmul.h"

#include <cstddef>
#include <vector>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/matmul.h"

namespace expedite::kernels {
namespace {

void check_groups(const RowGroups& groups) {
  require(groups.offsets.size() == groups.counts.size() + 1, "{} groups need {} row offsets, not {}",
          groups.counts.size(), groups.counts.size() + 1, groups.offsets.size());
  require(groups.offsets.front() == 0, "the first group starts at row {} instead of 0",
          groups.offsets.front());
  for (std::size_t e = 0; e < groups.counts.size(); ++e) {
    const std::int64_t rows = groups.offsets[e + 1] - groups.offsets[e];
    require(groups.counts[e] >= 0 && groups.counts[e] <= rows, "group {} counts {} tokens in {} rows", e,
            groups.counts[e], rows);
  }
}

void check_rows(const RowGroups& groups, ConstTensorView x, const char* name) {
  require_matrix(name, x);
  require(x.size(0) == groups.rows(), "{} has {} rows, but the groups have {}", name, x.size(0),
          groups.rows());
}

std::vector<ConstTensorView> blocks_of(const RowGroups& groups, ConstTensorView x) {
  std::vector<ConstTensorView> blocks;
  for (std::int64_t e = 0; e < groups.groups(); ++e) {
    blocks.push_back(x.slice(groups.offsets[e], groups.offsets[e + 1] - groups.offsets[e]));
  }
  return blocks;
}

std::vector<TensorView> blocks_of(const RowGroups& groups, TensorView x) {
  std::vector<TensorView> blocks;
  for (std::int64_t e = 0; e < groups.groups(); ++e) {
    blocks.push_back(x.slice(groups.offsets[e], groups.offsets[e + 1] - groups.offsets[e]));
  }
  return blocks;
}

void check_experts(std::int64_t experts, ConstTensorView w, const char* name) {
  if (w.rank() != 3 || w.size(0) != experts) [[unlikely]] {
    fail("{} has shape {}, but must have [{}, N, K]: a matrix for each block", name, to_string(w.shape()),
         experts);
  }
}

void check_blocks(std::int64_t blocks, std::int64_t others) {
  require(blocks == others, "{} blocks of rows do not fit {}", blocks, others);
}

}  // namespace

std::int64_t padded_rows(std::int64_t count) {
  require(count >= 0, "a group cannot have {} rows", count);
  return (count + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

void grouped_matmul(std::span<const ConstTensorView> x, ConstTensorView w, std::span<const TensorView> y) {
  check_blocks(std::ssize(x), std::ssize(y));
  check_experts(std::ssize(x), w, "w");
  std::vector<MatmulOperands> products;
  for (std::size_t e = 0; e < x.size(); ++e) {
    products.push_back({x[e], w[static_cast<std::int64_t>(e)], y[e]});
  }
  matmul_batch(products, {.transpose_b = true});
}

void grouped_matmul_input_grad(std::span<const ConstTensorView> dy, ConstTensorView w,
                               std::span<const TensorView> dx) {
  check_blocks(std::ssize(dy), std::ssize(dx));
  check_experts(std::ssize(dy), w, "w");
  std::vector<MatmulOperands> products;
  for (std::size_t e = 0; e < dy.size(); ++e) {
    products.push_back({dy[e], w[static_cast<std::int64_t>(e)], dx[e]});
  }
  matmul_batch(products);
}

void grouped_matmul_weight_grad(std::span<const ConstTensorView> dy, std::span<const ConstTensorView> x,
                                TensorView dw, bool accumulate) {
  check_blocks(std::ssize(dy), std::ssize(x));
  check_experts(std::ssize(dy), dw, "dw");
  std::vector<MatmulOperands> products;
  for (std::size_t e = 0; e < dy.size(); ++e) {
    products.push_back({dy[e], x[e], dw[static_cast<std::int64_t>(e)]});
  }
  matmul_batch(products, {.transpose_a = true, .accumulate = accumulate});
}

RowGroups aligned_groups(std::span<const std::int64_t> counts) {
  RowGroups groups;
  groups.counts.assign(counts.begin(), counts.end());
  groups.offsets.reserve(counts.size() + 1);
  groups.offsets.push_back(0);
  for (const std::int64_t count : counts) {
    groups.offsets.push_back(groups.offsets.back() + padded_rows(count));
  }
  return groups;
}

void zero_padding(const RowGroups& groups, TensorView x) {
  check_groups(groups);
  check_rows(groups, x, "x");
  for (std::int64_t e = 0; e < groups.groups(); ++e) {
    const std::int64_t begin = groups.offsets[e] + groups.counts[e];
    fill_zero(x.slice(begin, groups.offsets[e + 1] - begin));
  }
}

void grouped_matmul(const RowGroups& groups, ConstTensorView x, ConstTensorView w, TensorView y) {
  check_groups(groups);
  check_rows(groups, x, "x");
  check_rows(groups, y, "y");
  grouped_matmul(blocks_of(groups, x), w, blocks_of(groups, y));
}

void grouped_matmul_input_grad(const RowGroups& groups, ConstTensorView dy, ConstTensorView w,
                               TensorView dx) {
  check_groups(groups);
  check_rows(groups, dy, "dy");
  check_rows(groups, dx, "dx");
  grouped_matmul_input_grad(blocks_of(groups, dy), w, blocks_of(groups, dx));
}

void grouped_matmul_weight_grad(const RowGroups& groups, ConstTensorView dy, ConstTensorView x, TensorView dw,
                                bool accumulate) {
  check_groups(groups);
  check_rows(groups, dy, "dy");
  check_rows(groups, x, "x");
  grouped_matmul_weight_grad(blocks_of(groups, dy), blocks_of(groups, x), dw, accumulate);
}

}  // namespace expedite::kernels
