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

/// The products of all groups, each made by make(e).
template <typename Make>
void multiply_groups(const RowGroups& groups, MatmulOptions options, const Make& make) {
  std::vector<MatmulOperands> products;
  products.reserve(groups.counts.size());
  for (std::int64_t e = 0; e < groups.groups(); ++e) {
    products.push_back(make(e));
  }
  matmul_batch(products, options);
}

void check_rows(const RowGroups& groups, ConstTensorView x, const char* name) {
  require_matrix(name, x);
  require(x.size(0) == groups.rows(), "{} has {} rows, but the groups have {}", name, x.size(0),
          groups.rows());
}

void check_experts(const RowGroups& groups, ConstTensorView w, const char* name) {
  if (w.rank() != 3 || w.size(0) != groups.groups()) [[unlikely]] {
    fail("{} has shape {}, but must have [{}, N, K]: a matrix for each group", name, to_string(w.shape()),
         groups.groups());
  }
}

ConstTensorView rows_of(const RowGroups& groups, ConstTensorView x, std::int64_t e) {
  return x.slice(groups.offsets[e], groups.offsets[e + 1] - groups.offsets[e]);
}

TensorView rows_of(const RowGroups& groups, TensorView x, std::int64_t e) {
  return x.slice(groups.offsets[e], groups.offsets[e + 1] - groups.offsets[e]);
}

}  // namespace

RowGroups aligned_groups(std::span<const std::int64_t> counts) {
  RowGroups groups;
  groups.counts.assign(counts.begin(), counts.end());
  groups.offsets.reserve(counts.size() + 1);
  groups.offsets.push_back(0);
  for (const std::int64_t count : counts) {
    require(count >= 0, "a group cannot have {} rows", count);
    const std::int64_t rows =
        (count + RowGroups::kRowAlignment - 1) / RowGroups::kRowAlignment * RowGroups::kRowAlignment;
    groups.offsets.push_back(groups.offsets.back() + rows);
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
  check_experts(groups, w, "w");
  multiply_groups(groups, {.transpose_b = true}, [&](std::int64_t e) {
    return MatmulOperands{rows_of(groups, x, e), w[e], rows_of(groups, y, e)};
  });
}

void grouped_matmul_input_grad(const RowGroups& groups, ConstTensorView dy, ConstTensorView w,
                               TensorView dx) {
  check_groups(groups);
  check_rows(groups, dy, "dy");
  check_rows(groups, dx, "dx");
  check_experts(groups, w, "w");
  multiply_groups(groups, {}, [&](std::int64_t e) {
    return MatmulOperands{rows_of(groups, dy, e), w[e], rows_of(groups, dx, e)};
  });
}

void grouped_matmul_weight_grad(const RowGroups& groups, ConstTensorView dy, ConstTensorView x, TensorView dw,
                                bool accumulate) {
  check_groups(groups);
  check_rows(groups, dy, "dy");
  check_rows(groups, x, "x");
  check_experts(groups, dw, "dw");
  multiply_groups(groups, {.transpose_a = true, .accumulate = accumulate}, [&](std::int64_t e) {
    return MatmulOperands{rows_of(groups, dy, e), rows_of(groups, x, e), dw[e]};
  });
}

}  // namespace expedite::kernels
