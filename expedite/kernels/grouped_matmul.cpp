#include "expedite/kernels/grouped_matmul.h"

#include <cstddef>
#include <vector>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/matmul.h"

namespace expedite::kernels {
namespace {

template <typename View>
std::vector<View> slices(View x, const RowBlocks& blocks) {
  require(x.size(0) == blocks.total, "a matrix of {} rows, but its blocks have {}", x.size(0), blocks.total);
  std::vector<View> result;
  result.reserve(blocks.begin.size());
  for (std::size_t e = 0; e < blocks.begin.size(); ++e) {
    result.push_back(x.slice(blocks.begin[e], blocks.rows[e]));
  }
  return result;
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

RowBlocks row_blocks(std::span<const std::int64_t> counts) {
  RowBlocks blocks;
  for (const std::int64_t count : counts) {
    blocks.begin.push_back(blocks.total);
    blocks.rows.push_back(padded_rows(count));
    blocks.total += blocks.rows.back();
  }
  return blocks;
}

std::vector<ConstTensorView> blocks_of(ConstTensorView x, const RowBlocks& blocks) {
  return slices(x, blocks);
}

std::vector<TensorView> blocks_of(TensorView x, const RowBlocks& blocks) {
  return slices(x, blocks);
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

}  // namespace expedite::kernels
