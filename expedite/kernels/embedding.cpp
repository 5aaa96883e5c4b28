#include "expedite/kernels/embedding.h"

#include <algorithm>
#include <vector>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/parallel.h"
#include "expedite/kernels/rows.h"
#include "expedite/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expedite/kernels/embedding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "expedite/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace expedite::kernels::HWY_NAMESPACE {

// Columns [begin, end) of dtable[tokens[t]] += dy[t].
void embedding_backward_columns(const ConstTensorView& dy, std::span<const std::int32_t> tokens,
                                const TensorView& dtable, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = 0; t < dy.rows(); ++t) {
    float* to = dtable.row<float>(tokens[static_cast<std::size_t>(t)]) + begin;
    if (dy.dtype() == DType::bf16) {
      accumulate_row(dy.row<bf16>(t) + begin, to, end - begin);
    } else {
      accumulate_row(dy.row<float>(t) + begin, to, end - begin);
    }
  }
}

}  // namespace expedite::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace expedite::kernels {

HWY_EXPORT(embedding_backward_columns);

namespace {

void require_tokens(std::span<const std::int32_t> tokens, std::int64_t rows, std::int64_t vocabulary) {
  require(static_cast<std::int64_t>(tokens.size()) == rows, "{} tokens for {} rows", tokens.size(), rows);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    require(tokens[t] >= 0 && tokens[t] < vocabulary,
            "token {} is {}, outside the model's vocabulary of {}: is it the tokenizer of this model?", t,
            tokens[t], vocabulary);
  }
}

}  // namespace

void embedding(ConstTensorView table, std::span<const std::int32_t> tokens, TensorView dst) {
  require_matrix("the embedding table", table);
  require_tokens(tokens, dst.rows(), table.rows());
  std::vector<RowRef> rows;
  rows.reserve(tokens.size());
  for (const std::int32_t token : tokens) {
    rows.push_back({0, token});
  }
  gather_rows({&table, 1}, rows, dst);
}

void embedding_backward(ConstTensorView dy, std::span<const std::int32_t> tokens, TensorView dtable) {
  require_float("dy", dy);
  require_matrix("dy", dy);
  require_type("dtable", dtable, DType::f32);
  require_matrix("dtable", dtable);
  require_tokens(tokens, dy.rows(), dtable.rows());
  require(dy.columns() == dtable.columns(), "rows of {} columns do not fit a table of {}", dy.columns(),
          dtable.columns());
  // A token may come again: threads share out columns, not tokens, so that its rows are added in order.
  constexpr std::int64_t kColumns = 64;
  parallel_for((dy.columns() + kColumns - 1) / kColumns, 1, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(embedding_backward_columns)
    (dy, tokens, dtable, begin * kColumns, std::min(dy.columns(), end * kColumns));
  });
}

}  // namespace expedite::kernels
#endif  // HWY_ONCE
