#include "expedite/kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "expedite/kernels/attention_dispatch.h"
#include "expedite/kernels/attention_internal.h"
#include "expedite/kernels/bf16_products.h"
#include "expedite/kernels/cpu.h"

namespace expedite::kernels {
namespace attention {
namespace {

void check_matrix(const char* name, const ConstTensorView& tensor, std::int64_t tokens, std::int64_t columns,
                  DType dtype) {
  require(tensor.rank() == 2 && tensor.rows() == tokens && tensor.columns() == columns,
          "attention: {} is {}, not [{}, {}]", name, to_string(tensor.shape()), tokens, columns);
  require(tensor.dtype() == dtype, "attention: {} is {}, but q is {}; all must share one type", name,
          name_of(tensor.dtype()), name_of(dtype));
}

void check_options(const AttentionOptions& options) {
  require(options.kv_heads >= 1 && options.heads >= 1 && options.heads % options.kv_heads == 0,
          "attention: {} heads cannot share {} key/value heads; the number of heads must be a multiple",
          options.heads, options.kv_heads);
  require(options.head_dim >= 1, "attention: head_dim is {}, not 1 or more", options.head_dim);
  require(std::isfinite(options.scale), "attention: the scale is {}, not a finite number", options.scale);
  require(options.sliding_window >= 0, "attention: sliding_window is {}; it is 0 (none) or more",
          options.sliding_window);
}

void check_bounds(std::span<const std::int64_t> bounds, std::int64_t tokens) {
  require(!bounds.empty() && bounds.front() == 0 && bounds.back() == tokens,
          "attention: sequence bounds must start at 0 and end at the number of tokens, {}", tokens);
  require(std::is_sorted(bounds.begin(), bounds.end()), "attention: sequence bounds must never fall");
}

template <typename Arguments>
void check_inputs(const Arguments& arguments) {
  const AttentionOptions& options = arguments.options;
  check_options(options);
  const std::int64_t tokens = arguments.q.rows();
  const DType dtype = arguments.q.dtype();
  require(dtype == DType::f32 || dtype == DType::bf16, "attention: q is {}, not f32 or bf16", name_of(dtype));
  const std::int64_t query_columns = options.heads * options.head_dim;
  const std::int64_t key_columns = options.kv_heads * options.head_dim;
  check_matrix("q", arguments.q, tokens, query_columns, dtype);
  check_matrix("k", arguments.k, tokens, key_columns, dtype);
  check_matrix("v", arguments.v, tokens, key_columns, dtype);
  check_matrix("out", arguments.out, tokens, query_columns, dtype);
  check_bounds(arguments.bounds, tokens);
  const ConstTensorView log_sum_exp = arguments.log_sum_exp;
  require(log_sum_exp.dtype() == DType::f32 && log_sum_exp.shape() == Shape({options.heads, tokens}),
          "attention: log_sum_exp is {} {}, not f32 [{}, {}]", name_of(log_sum_exp.dtype()),
          to_string(log_sum_exp.shape()), options.heads, tokens);
}

void check_arithmetic(Arithmetic arithmetic, DType dtype) {
  require(supports(arithmetic), "attention: this CPU or build has no bf16 dot products; use portable");
  require(arithmetic == Arithmetic::portable || dtype == DType::bf16,
          "attention: bf16 dot products need bf16 tensors, not {}", name_of(dtype));
}

}  // namespace

bool supports(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::portable || (kHasAvx512Bf16 && compiled_with_bf16_dot());
}

Arithmetic best_arithmetic(DType dtype) {
  const bool dot = dtype == DType::bf16 && bf16_ways().attention == Bf16Products::native;
  return dot && supports(Arithmetic::bf16_dot) ? Arithmetic::bf16_dot : Arithmetic::portable;
}

std::int64_t longest_sequence(std::span<const std::int64_t> bounds) {
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < bounds.size(); ++i) {
    longest = std::max(longest, bounds[i] - bounds[i - 1]);
  }
  return longest;
}

void forward(const ForwardArguments& arguments, Arithmetic arithmetic, MemoryPool& pool) {
  check_inputs(arguments);
  check_arithmetic(arithmetic, arguments.q.dtype());
  if (arguments.q.rows() > 0) {
    dispatch_forward(arguments, arithmetic, pool);
  }
}

void backward(const BackwardArguments& arguments, Arithmetic arithmetic, MemoryPool& pool) {
  check_inputs(arguments);
  check_arithmetic(arithmetic, arguments.q.dtype());
  const std::int64_t tokens = arguments.q.rows();
  const DType dtype = arguments.q.dtype();
  check_matrix("dout", arguments.dout, tokens, arguments.q.columns(), dtype);
  check_matrix("dq", arguments.dq, tokens, arguments.q.columns(), dtype);
  check_matrix("dk", arguments.dk, tokens, arguments.k.columns(), dtype);
  check_matrix("dv", arguments.dv, tokens, arguments.v.columns(), dtype);
  if (tokens > 0) {
    dispatch_backward(arguments, arithmetic, pool);
  }
}

}  // namespace attention

void attention_forward(ConstTensorView q, ConstTensorView k, ConstTensorView v,
                       std::span<const std::int64_t> bounds, const AttentionOptions& options, TensorView out,
                       TensorView log_sum_exp, MemoryPool& pool) {
  attention::forward({q, k, v, bounds, options, out, log_sum_exp}, attention::best_arithmetic(q.dtype()),
                     pool);
}

void attention_backward(ConstTensorView dout, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                        ConstTensorView out, ConstTensorView log_sum_exp,
                        std::span<const std::int64_t> bounds, const AttentionOptions& options, TensorView dq,
                        TensorView dk, TensorView dv, MemoryPool& pool) {
  attention::backward({dout, q, k, v, out, log_sum_exp, bounds, options, dq, dk, dv},
                      attention::best_arithmetic(q.dtype()), pool);
}

}  // namespace expedite::kernels
