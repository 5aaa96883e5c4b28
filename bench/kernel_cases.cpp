#include "bench/kernel_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "bench/stream_copy.h"
#include "expedite/kernels/attention.h"
#include "expedite/kernels/cross_entropy.h"
#include "expedite/kernels/grouped_bias.h"
#include "expedite/kernels/grouped_matmul.h"
#include "expedite/kernels/matmul.h"
#include "expedite/kernels/optimizer.h"
#include "expedite/kernels/rms_norm.h"
#include "expedite/kernels/rows.h"
#include "expedite/kernels/swiglu.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::bench {
namespace {

/// Owns a case's operands.
class Operands {
 public:
  /// Uniform in [-1, 1).
  TensorView values(DType type, Shape shape) {
    const TensorView result = room(type, shape);
    const std::int64_t count = result.elements();
    for (std::int64_t i = 0; i < count; ++i) {
      state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
      const auto mantissa = static_cast<std::uint32_t>(state_ >> 41);
      const float value = std::bit_cast<float>(0x40000000U | mantissa) - 3.0F;
      if (type == DType::bf16) {
        result.as<bf16>()[i] = bf16(value);
      } else {
        result.as<float>()[i] = value;
      }
    }
    return result;
  }
  TensorView zeros(DType type, Shape shape) {
    const TensorView result = room(type, shape);
    std::fill_n(static_cast<std::byte*>(result.data()), result.bytes(), std::byte{0});
    return result;
  }
  MemoryPool& pool() { return pool_; }

 private:
  TensorView room(DType type, Shape shape) {
    buffers_.push_back(pool_.allocate(shape.elements() * size_of(type), MemoryCategory::activations));
    return buffers_.back().view(type, shape);
  }

  MemoryPool pool_;
  std::vector<Buffer> buffers_;
  std::uint64_t state_ = 1;
};

/// A case whose operands are made by `setup(operands)`, which returns the function to measure.
template <typename Setup>
KernelCase make_case(std::string name, std::string shape, Limit limit, double work, Setup setup) {
  return {std::move(name), std::move(shape), limit, work, [setup]() -> std::function<void()> {
            auto operands = std::make_shared<Operands>();
            auto run = setup(*operands);
            return [operands, run] { run(); };
          }};
}

Limit matmul_limit(DType type) {
  return type == DType::bf16 ? Limit::bf16_matmul : Limit::f32_matmul;
}

double product_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

KernelCase matmul_case(std::int64_t m, std::int64_t n, std::int64_t k, DType type,
                       kernels::MatmulOptions options = {.transpose_b = true}) {
  return make_case(
      options.transpose_a ? "matmul weight grad" : "matmul",
      fmt::format("{} {}x{}x{}", name_of(type), m, n, k), matmul_limit(type), product_flops(m, n, k),
      [=](Operands& operands) {
        const TensorView a = operands.values(type, options.transpose_a ? Shape{k, m} : Shape{m, k});
        const TensorView b = operands.values(type, options.transpose_b ? Shape{n, k} : Shape{k, n});
        const TensorView dst = operands.zeros(options.accumulate ? DType::f32 : type, {m, n});
        return [=] { kernels::matmul(a, b, dst, options); };
      });
}

void add_matmuls(std::vector<KernelCase>& cases) {
  for (const DType type : {DType::bf16, DType::f32}) {
    cases.push_back(matmul_case(2048, 1024, 1024, type));
    cases.push_back(matmul_case(2048, 1024, 1024, type, {.transpose_a = true, .accumulate = true}));
  }
  cases.push_back(matmul_case(2048, 3072, 1024, DType::bf16));
  cases.push_back(matmul_case(1000, 1024, 1024, DType::bf16));
  cases.push_back(matmul_case(16, 1024, 1024, DType::bf16));
  cases.push_back(matmul_case(2048, 16, 1024, DType::f32));  // a router
}

/// The three products of one expert projection over 8192 rows; `skew` gives the first expert half of them.
void add_grouped_matmuls(std::vector<KernelCase>& cases, const char* projection, std::int64_t n,
                         std::int64_t k, DType type, bool skew) {
  constexpr std::int64_t kRows = 8192;
  constexpr std::int64_t kExperts = 8;
  std::vector<std::int64_t> counts(kExperts, kRows / kExperts);
  if (skew) {
    counts = {kRows / 2, 1000, 800, 700, 600, 500, 300, 196};
  }
  const kernels::RowBlocks blocks = kernels::row_blocks(counts);
  const std::int64_t rows = blocks.total;
  const auto sources = [blocks](ConstTensorView x) { return kernels::blocks_of(x, blocks); };
  const std::string shape = fmt::format("{} {} {}x{}x{} E={}{}", name_of(type), projection, kRows, n, k,
                                        kExperts, skew ? " skewed" : "");
  const double flops = product_flops(kRows, n, k);
  const Limit limit = matmul_limit(type);
  cases.push_back(make_case("grouped matmul", shape, limit, flops, [=](Operands& operands) {
    const TensorView x = operands.values(type, {rows, k});
    const TensorView w = operands.values(type, {kExperts, n, k});
    const TensorView y = operands.zeros(type, {rows, n});
    return [=] { kernels::grouped_matmul(sources(x), w, kernels::blocks_of(y, blocks)); };
  }));
  cases.push_back(make_case("grouped matmul dX", shape, limit, flops, [=](Operands& operands) {
    const TensorView dy = operands.values(type, {rows, n});
    const TensorView w = operands.values(type, {kExperts, n, k});
    const TensorView dx = operands.zeros(type, {rows, k});
    return [=] { kernels::grouped_matmul_input_grad(sources(dy), w, kernels::blocks_of(dx, blocks)); };
  }));
  cases.push_back(make_case("grouped matmul dW", shape, limit, flops, [=](Operands& operands) {
    const TensorView dy = operands.values(type, {rows, n});
    const TensorView x = operands.values(type, {rows, k});
    const TensorView dw = operands.zeros(DType::f32, {kExperts, n, k});
    return [=] { kernels::grouped_matmul_weight_grad(sources(dy), sources(x), dw, true); };
  }));
}

constexpr std::int64_t kHidden = 1024;

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

/// No kernel of a model: it shows how far memcpy, the yardstick, is from what the memory can do.
void add_streaming_copy(std::vector<KernelCase>& cases) {
  constexpr std::int64_t kElements = std::int64_t{96} << 20;
  cases.push_back(make_case("streaming copy", fmt::format("n={}", kElements), Limit::copy, 4.0 * kElements,
                            [=](Operands& operands) {
                              const TensorView src = operands.values(DType::bf16, {kElements});
                              const TensorView dst = operands.zeros(DType::bf16, {kElements});
                              return [=] { stream_copy(src.data(), dst.data(), src.bytes()); };
                            }));
}

/// Rows gathered into expert order, and each token's rows summed onto a residual.
void add_permutes(std::vector<KernelCase>& cases, std::int64_t tokens) {
  constexpr std::int64_t kTopK = 4;
  constexpr std::int64_t kExperts = 16;
  const std::int64_t rows = tokens * kTopK;
  const std::string shape = fmt::format("bf16 T={} H={} E={} k={}", tokens, kHidden, kExperts, kTopK);
  const double token_bytes = 2.0 * static_cast<double>(tokens * kHidden);
  const double row_bytes = kTopK * token_bytes;
  const double ref_bytes = static_cast<double>(sizeof(kernels::RowRef)) * static_cast<double>(rows);
  // Each row is read and written: tokens are more than the caches keep from one expert to the next.
  cases.push_back(
      make_case("permute", shape, Limit::copy, 2 * row_bytes + ref_bytes, [=](Operands& operands) {
        const auto refs = random_routes(tokens, kTopK, kExperts).token_of_row;
        const ConstTensorView src = operands.values(DType::bf16, {tokens, kHidden});
        const TensorView dst = operands.zeros(DType::bf16, {rows, kHidden});
        return [=] { kernels::gather_rows({&src, 1}, refs, dst); };
      }));
  cases.push_back(make_case("unpermute", shape, Limit::copy, 2 * token_bytes + row_bytes + ref_bytes,
                            [=](Operands& operands) {
                              const auto refs = random_routes(tokens, kTopK, kExperts).row_of_choice;
                              const ConstTensorView src = operands.values(DType::bf16, {rows, kHidden});
                              const TensorView residual = operands.values(DType::bf16, {tokens, kHidden});
                              const TensorView dst = operands.zeros(DType::bf16, {tokens, kHidden});
                              return [=] { kernels::sum_rows({&src, 1}, refs, residual, dst); };
                            }));
}

void add_swiglu(std::vector<KernelCase>& cases, const std::string& name, DType type, bool weighted,
                const kernels::GluOptions& options = {}) {
  constexpr std::int64_t kRows = 65536;
  constexpr std::int64_t kWidth = 512;
  const std::string shape = fmt::format("{} R={} F={}", name_of(type), kRows, kWidth);
  const double bytes = static_cast<double>(kRows * kWidth * size_of(type));
  const double weight_bytes = weighted ? 4.0 * kRows : 0.0;
  const auto weights_of = [=](Operands& operands) {
    return weighted ? operands.values(DType::f32, {kRows}) : TensorView();
  };
  cases.push_back(make_case(name, shape, Limit::copy, 3 * bytes + weight_bytes, [=](Operands& operands) {
    const TensorView gate_up = operands.values(type, {kRows, 2 * kWidth});
    const TensorView weights = weights_of(operands);
    const TensorView y = operands.zeros(type, {kRows, kWidth});
    return [=] { kernels::swiglu(gate_up, weights, y, options); };
  }));
  cases.push_back(make_case(
      name + " backward", shape, Limit::copy, 5 * bytes + 2 * weight_bytes, [=](Operands& operands) {
        const TensorView gate_up = operands.values(type, {kRows, 2 * kWidth});
        const TensorView dy = operands.values(type, {kRows, kWidth});
        const TensorView weights = weights_of(operands);
        const TensorView dgate_up = operands.zeros(type, {kRows, 2 * kWidth});
        const TensorView dweights = weights_of(operands);
        return [=] { kernels::swiglu_backward(dy, gate_up, weights, dgate_up, dweights, options); };
      }));
}

void add_rms_norm(std::vector<KernelCase>& cases, DType type) {
  constexpr std::int64_t kTokens = 65536;
  constexpr float kEpsilon = 1e-6F;
  const std::string shape = fmt::format("{} T={} H={}", name_of(type), kTokens, kHidden);
  const double bytes = static_cast<double>(kTokens * kHidden * size_of(type));
  const double inverse_bytes = 4.0 * kTokens;
  cases.push_back(
      make_case("rms_norm", shape, Limit::copy, 2 * bytes + inverse_bytes, [=](Operands& operands) {
        const TensorView x = operands.values(type, {kTokens, kHidden});
        const TensorView weight = operands.values(type, {kHidden});
        const TensorView y = operands.zeros(type, {kTokens, kHidden});
        const TensorView inverse_rms = operands.zeros(DType::f32, {kTokens});
        return [=] { kernels::rms_norm(x, weight, kEpsilon, y, inverse_rms); };
      }));
  cases.push_back(
      make_case("rms_norm backward", shape, Limit::copy, 3 * bytes + inverse_bytes, [=](Operands& operands) {
        const TensorView dy = operands.values(type, {kTokens, kHidden});
        const TensorView x = operands.values(type, {kTokens, kHidden});
        const TensorView weight = operands.values(type, {kHidden});
        const TensorView y = operands.zeros(type, {kTokens, kHidden});
        const TensorView inverse_rms = operands.zeros(DType::f32, {kTokens});
        kernels::rms_norm(x, weight, kEpsilon, y, inverse_rms);
        const TensorView dx = y;
        const TensorView dweight = operands.zeros(DType::f32, {kHidden});
        return [=] { kernels::rms_norm_backward(dy, x, weight, inverse_rms, dx, false, dweight); };
      }));
}

/// Rows of 32 experts, weighted, as behind a down projection.
void add_grouped_bias(std::vector<KernelCase>& cases) {
  constexpr std::int64_t kBlocks = 32;
  constexpr std::int64_t kRows = 65536;
  const std::string shape = fmt::format("bf16 R={} N={} E={}", kRows, kHidden, kBlocks);
  const double bytes = 2.0 * kRows * kHidden;
  const double weight_bytes = 4.0 * kRows;
  const kernels::RowBlocks blocks = kernels::row_blocks(std::vector<std::int64_t>(kBlocks, kRows / kBlocks));
  const auto rows = [=](Operands& operands) { return operands.values(DType::bf16, {kRows, kHidden}); };
  const auto weights = [=](Operands& operands) {
    return kernels::blocks_of(ConstTensorView(operands.values(DType::f32, {kRows})), blocks);
  };
  cases.push_back(
      make_case("grouped bias", shape, Limit::copy, 2 * bytes + weight_bytes, [=](Operands& operands) {
        const TensorView bias = operands.values(DType::bf16, {kBlocks, kHidden});
        return [bias, of_weights = weights(operands), y = kernels::blocks_of(rows(operands), blocks)] {
          kernels::grouped_bias(bias, of_weights, y);
        };
      }));
  cases.push_back(make_case("grouped bias weight grad", shape, Limit::copy, bytes + weight_bytes,
                            [=](Operands& operands) {
                              const TensorView dbias = operands.zeros(DType::f32, {kBlocks, kHidden});
                              return [dbias, of_weights = weights(operands),
                                      dy = kernels::blocks_of(ConstTensorView(rows(operands)), blocks)] {
                                kernels::grouped_bias_weight_grad(dy, of_weights, dbias);
                              };
                            }));
}

/// Causal: half of the square counts. Forward is two products, of scores and of values; backward three of the
/// one size and two of the other.
void add_attention(std::vector<KernelCase>& cases, DType type, std::int64_t head_dim,
                   std::int64_t value_dim) {
  constexpr std::int64_t kTokens = 2048;
  constexpr std::int64_t kHeads = 16;
  const std::int64_t width = kHeads * head_dim;
  const std::int64_t value_width = kHeads * value_dim;
  const kernels::AttentionOptions options{
      .heads = kHeads, .kv_heads = kHeads, .head_dim = head_dim, .value_dim = value_dim};
  const std::string values = value_dim == head_dim ? "" : fmt::format(", values of {}", value_dim);
  const std::string shape =
      fmt::format("{} T={} {} heads of {}{}", name_of(type), kTokens, kHeads, head_dim, values);
  const double product = product_flops(kTokens, kTokens, width) / 2;
  const double value_product = product_flops(kTokens, kTokens, value_width) / 2;
  const std::vector<std::int64_t> bounds = {0, kTokens};
  struct Tensors {
    TensorView q, k, v, out, log_sum_exp;
  };
  const auto forward_operands = [=](Operands& operands) {
    return Tensors{operands.values(type, {kTokens, width}), operands.values(type, {kTokens, width}),
                   operands.values(type, {kTokens, value_width}),
                   operands.zeros(type, {kTokens, value_width}),
                   operands.zeros(DType::f32, {kHeads, kTokens})};
  };
  cases.push_back(
      make_case("attention", shape, matmul_limit(type), product + value_product, [=](Operands& operands) {
        const Tensors x = forward_operands(operands);
        MemoryPool* pool = &operands.pool();
        return [=] {
          kernels::attention_forward({x.q, x.k, x.v}, bounds, options, x.out, x.log_sum_exp, *pool);
        };
      }));
  cases.push_back(
      make_case("attention backward", shape, matmul_limit(type), 3 * product + 2 * value_product,
                [=](Operands& operands) {
                  const Tensors x = forward_operands(operands);
                  MemoryPool* pool = &operands.pool();
                  kernels::attention_forward({x.q, x.k, x.v}, bounds, options, x.out, x.log_sum_exp, *pool);
                  const TensorView dout = operands.values(type, {kTokens, value_width});
                  const TensorView dq = operands.zeros(type, {kTokens, width});
                  const TensorView dk = operands.zeros(type, {kTokens, width});
                  const TensorView dv = operands.zeros(type, {kTokens, value_width});
                  return [=] {
                    kernels::attention_backward(dout, {x.q, x.k, x.v}, x.out, x.log_sum_exp, bounds, options,
                                                {dq, dk, dv}, *pool);
                  };
                }));
}

/// Three products: logits, and the gradients of hidden states and weight.
void add_cross_entropy(std::vector<KernelCase>& cases) {
  constexpr std::int64_t kTokens = 1024;
  constexpr std::int64_t kVocabulary = 16384;
  cases.push_back(make_case(
      "cross entropy", fmt::format("bf16 T={} H={} V={}", kTokens, kHidden, kVocabulary), Limit::bf16_matmul,
      3 * product_flops(kTokens, kVocabulary, kHidden), [=](Operands& operands) {
        const TensorView hidden = operands.values(DType::bf16, {kTokens, kHidden});
        const TensorView weight = operands.values(DType::bf16, {kVocabulary, kHidden});
        const kernels::CrossEntropyGradients gradients{1.0F / kTokens,
                                                       operands.zeros(DType::bf16, {kTokens, kHidden}),
                                                       operands.zeros(DType::f32, {kVocabulary, kHidden})};
        std::vector<std::int32_t> targets(kTokens);
        std::iota(targets.begin(), targets.end(), 0);
        MemoryPool* pool = &operands.pool();
        return [=] { (void)kernels::linear_cross_entropy(hidden, weight, targets, &gradients, *pool); };
      }));
}

/// Reads master, both averages and gradient; writes all four and the bf16 weight.
void add_adamw(std::vector<KernelCase>& cases) {
  constexpr std::int64_t kCount = std::int64_t{16} << 20;
  constexpr double kBytesEach = 4 * 4 + 4 * 4 + 2;
  cases.push_back(make_case(
      "adamw", fmt::format("n={}", kCount), Limit::copy, kBytesEach * kCount, [=](Operands& operands) {
        const TensorView master = operands.values(DType::f32, {kCount});
        const TensorView average = operands.zeros(DType::f32, {kCount});
        const TensorView square = operands.zeros(DType::f32, {kCount});
        const TensorView gradient = operands.values(DType::f32, {kCount});
        const TensorView weight = operands.zeros(DType::bf16, {kCount});
        return [=] { kernels::adamw({}, master, average, square, gradient, weight, true); };
      }));
}

}  // namespace

std::vector<KernelCase> kernel_cases() {
  std::vector<KernelCase> cases;
  add_matmuls(cases);
  constexpr std::int64_t kExpertWidth = 512;
  for (const bool skew : {false, true}) {
    add_grouped_matmuls(cases, "gate_up", 2 * kExpertWidth, kHidden, DType::bf16, skew);
    add_grouped_matmuls(cases, "down", kHidden, kExpertWidth, DType::bf16, skew);
  }
  add_grouped_matmuls(cases, "gate_up", 2 * kExpertWidth, kHidden, DType::f32, false);
  add_streaming_copy(cases);
  for (const std::int64_t tokens : {2048, 32768}) {
    add_permutes(cases, tokens);
  }
  for (const DType type : {DType::bf16, DType::f32}) {
    add_swiglu(cases, "swiglu", type, false);
    add_swiglu(cases, "weighted swiglu", type, true);
    add_rms_norm(cases, type);
    add_attention(cases, type, 64, 64);
  }
  // What single families of models need: gpt-oss, DeepSeek.
  add_swiglu(cases, "clamped swiglu", DType::bf16, true, {.alpha = 1.702F, .limit = 7.0F, .up_offset = 1.0F});
  add_grouped_bias(cases);
  add_attention(cases, DType::bf16, 192, 128);
  add_cross_entropy(cases);
  add_adamw(cases);
  return cases;
}

}  // namespace expedite::bench
