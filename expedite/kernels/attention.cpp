#include "expedite/kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "expedite/kernels/arguments.h"
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
  require(options.value_dim >= 0, "attention: value_dim is {}; it is 0 (as head_dim) or more",
          options.value_dim);
  require(std::isfinite(options.scale), "attention: the scale is {}, not a finite number", options.scale);
  require(options.sliding_window >= 0, "attention: sliding_window is {}; it is 0 (none) or more",
          options.sliding_window);
}

void check_bounds(std::span<const std::int64_t> bounds, std::int64_t tokens) {
  require(!bounds.empty() && bounds.front() == 0 && bounds.back() == tokens,
          "attention: sequence bounds must start at 0 and end at the number of tokens, {}", tokens);
  require(std::is_sorted(bounds.begin(), bounds.end()), "attention: sequence bounds must never fall");
}

void check_sinks(const AttentionOperands& operands, std::int64_t heads) {
  const ConstTensorView& sinks = operands.sinks;
  if (present(sinks)) {
    require(sinks.shape() == Shape({heads}), "attention: sinks are {}, not [{}]: one for each query head",
            to_string(sinks.shape()), heads);
    require(sinks.dtype() == DType::f32 || sinks.dtype() == operands.q.dtype(),
            "attention: sinks are {}; they must be f32 or of q's type, {}", name_of(sinks.dtype()),
            name_of(operands.q.dtype()));
  }
}

template <typename Arguments>
void check_inputs(const Arguments& arguments) {
  const AttentionOptions& options = arguments.options;
  check_options(options);
  const AttentionOperands& operands = arguments.operands;
  const std::int64_t tokens = operands.q.rows();
  const DType dtype = operands.q.dtype();
  require(dtype == DType::f32 || dtype == DType::bf16, "attention: q is {}, not f32 or bf16", name_of(dtype));
  check_matrix("q", operands.q, tokens, options.heads * options.head_dim, dtype);
  check_matrix("k", operands.k, tokens, options.kv_heads * options.head_dim, dtype);
  check_matrix("v", operands.v, tokens, options.kv_heads * value_dim(options), dtype);
  check_sinks(operands, options.heads);
  check_matrix("out", arguments.out, tokens, options.heads * value_dim(options), dtype);
  check_bounds(arguments.bounds, tokens);
  const ConstTensorView log_sum_exp = arguments.log_sum_exp;
  require(log_sum_exp.dtype() == DType::f32 && log_sum_exp.shape() == Shape({options.heads, tokens}),
          "attention: log_sum_exp is {} {}, not f32 [{}, {}]", name_of(log_sum_exp.dtype()),
          to_string(log_sum_exp.shape()), options.heads, tokens);
}

void check_gradients(const BackwardArguments& arguments) {
  const AttentionOperands& operands = arguments.operands;
  const AttentionGradients& gradients = arguments.gradients;
  const std::int64_t tokens = operands.q.rows();
  const DType dtype = operands.q.dtype();
  check_matrix("dout", arguments.dout, tokens, arguments.out.columns(), dtype);
  check_matrix("dq", gradients.q, tokens, operands.q.columns(), dtype);
  check_matrix("dk", gradients.k, tokens, operands.k.columns(), dtype);
  check_matrix("dv", gradients.v, tokens, operands.v.columns(), dtype);
  if (present(gradients.sinks)) {
    const ConstTensorView dsinks = gradients.sinks;
    require(present(operands.sinks), "attention: gradients of sinks are wanted, but there are no sinks");
    require(dsinks.dtype() == DType::f32 && dsinks.shape() == Shape({arguments.options.heads}),
            "attention: dsinks is {} {}, not f32 [{}]", name_of(dsinks.dtype()), to_string(dsinks.shape()),
            arguments.options.heads);
  }
}

void check_arithmetic(Arithmetic arithmetic, DType dtype) {
  require(supports(arithmetic), "attention: this CPU or build has no bf16 dot products; use portable");
  require(arithmetic == Arithmetic::portable || dtype == DType::bf16,
          "attention: bf16 dot products need bf16 tensors, not {}", name_of(dtype));
}

/// Units of one head write a sum for each sequence, which are added in order: threads share no sum.
void backward_with_sinks(BackwardArguments arguments, Arithmetic arithmetic, MemoryPool& pool) {
  const std::int64_t heads = arguments.options.heads;
  const std::int64_t sequences = std::ssize(arguments.bounds) - 1;
  const std::int64_t bytes = sequences * heads * static_cast<std::int64_t>(sizeof(double));
  const Buffer memory = pool.allocate(bytes, MemoryCategory::workspace);
  arguments.sink_sums = {static_cast<double*>(static_cast<void*>(memory.data())),
                         static_cast<std::size_t>(sequences * heads)};
  std::ranges::fill(arguments.sink_sums, 0.0);  // empty sequences write none
  dispatch_backward(arguments, arithmetic, pool);
  for (std::int64_t head = 0; head < heads; ++head) {
    double sum = 0.0;
    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
      sum += arguments.sink_sums[static_cast<std::size_t>(sequence * heads + head)];
    }
    *arguments.gradients.sinks.row<float>(head) += static_cast<float>(sum);
  }
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
  check_arithmetic(arithmetic, arguments.operands.q.dtype());
  if (arguments.operands.q.rows() > 0) {
    dispatch_forward(arguments, arithmetic, pool);
  }
}

void backward(const BackwardArguments& arguments, Arithmetic arithmetic, MemoryPool& pool) {
  check_inputs(arguments);
  check_arithmetic(arithmetic, arguments.operands.q.dtype());
  check_gradients(arguments);
  if (arguments.operands.q.rows() == 0) {
    return;
  }
  if (present(arguments.gradients.sinks)) {
    backward_with_sinks(arguments, arithmetic, pool);
  } else {
    dispatch_backward(arguments, arithmetic, pool);
  }
}

}  // namespace attention

void attention_forward(const AttentionOperands& operands, std::span<const std::int64_t> bounds,
                       const AttentionOptions& options, TensorView out, TensorView log_sum_exp,
                       MemoryPool& pool) {
  attention::forward({operands, bounds, options, out, log_sum_exp},
                     attention::best_arithmetic(operands.q.dtype()), pool);
}

void attention_backward(ConstTensorView dout, const AttentionOperands& operands, ConstTensorView out,
                        ConstTensorView log_sum_exp, std::span<const std::int64_t> bounds,
                        const AttentionOptions& options, const AttentionGradients& gradients,
                        MemoryPool& pool) {
  attention::backward({dout, operands, out, log_sum_exp, bounds, options, gradients},
                      attention::best_arithmetic(operands.q.dtype()), pool);
}

}  // namespace expedite::kernels
