#include <cmath>
#include <numeric>

#include "bench/case_builders.h"
#include "expedite/kernels/attention.h"
#include "expedite/kernels/rotary.h"
#include "tests/kernels/attention_reference.h"
#include "tests/reference/rotary.h"

namespace expedite::bench {
namespace {

using reference::Matrix;
namespace fp64 = kernels::reference;

fp64::Problem problem_of(const CaseText& text) {
  const std::int64_t heads = text.sizes[1];
  const std::int64_t head_dim = text.sizes[2];
  require(heads > 0 && head_dim > 0, "case '{}': {} heads of {}; both are 1 or more", text.text, heads,
          head_dim);
  const std::int64_t kv_heads = text.has("kv_heads") ? text.number("kv_heads") : heads;
  require(heads % kv_heads == 0, "case '{}': kv_heads={} does not divide {} heads", text.text, kv_heads,
          heads);
  fp64::Problem problem;
  problem.lengths = text.has("lengths") ? text.list("lengths") : std::vector{text.sizes[0]};
  require(problem.tokens() == text.sizes[0],
          "case '{}': lengths= sum to {}, but the sizes begin with {} tokens", text.text, problem.tokens(),
          text.sizes[0]);
  problem.options = {.heads = heads,
                     .kv_heads = kv_heads,
                     .head_dim = head_dim,
                     .value_dim = text.number("value_dim"),
                     .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))),
                     .sliding_window = text.number("window")};
  problem.sinks = text.is("sinks");
  return problem;
}

/// FLOP of one product of every query with the keys that it sees, per element of a head. As is usual half of
/// a sequence's square counts where there is no window.
double score_flops(const fp64::Problem& problem) {
  double pairs = 0.0;
  for (const std::int64_t length : problem.lengths) {
    const auto tokens = static_cast<double>(length);
    const auto window = static_cast<double>(problem.options.sliding_window);
    pairs += window == 0.0 || window >= tokens ? tokens * tokens / 2 : window * (tokens - window / 2);
  }
  return 2.0 * pairs * static_cast<double>(problem.options.heads);
}

struct AttentionTensors {
  TensorView q, k, v, sinks, out, log_sum_exp;
  [[nodiscard]] kernels::AttentionOperands operands() const { return {q, k, v, sinks}; }
};

AttentionTensors attention_tensors(Operands& operands, const fp64::Problem& problem, DType type) {
  const std::int64_t tokens = problem.tokens();
  const std::int64_t heads = problem.options.heads;
  const TensorView q = operands.values(type, {tokens, problem.query_columns()});
  const TensorView k = operands.values(type, {tokens, problem.key_columns()});
  const TensorView v = operands.values(type, {tokens, problem.value_columns()});
  return {q,
          k,
          v,
          problem.sinks ? operands.values(DType::f32, {heads}) : TensorView(),
          operands.zeros(type, {tokens, problem.out_columns()}),
          operands.zeros(DType::f32, {heads, tokens})};
}

fp64::Results attention_reference(const fp64::Problem& problem, const AttentionTensors& x,
                                  ConstTensorView dout) {
  fp64::Inputs inputs{
      doubles(x.q).values, doubles(x.k).values, doubles(x.v).values, doubles(dout).values, {}};
  if (problem.sinks) {
    inputs.sinks = doubles(x.sinks).values;
  }
  return fp64::Reference(problem, inputs).compute();
}

KernelResult attention_result(std::string name, TensorView view, std::vector<double> wanted, DType type) {
  Matrix matrix(view.rows(), view.columns());
  matrix.values = std::move(wanted);
  // bf16 probabilities and their gradients are rounded before they are summed.
  return result_in(std::move(name), view, std::move(matrix), type == DType::bf16 ? 0.02 : 2e-5, 1.0);
}

KernelCase make_attention_forward(const CaseText& text, const fp64::Problem& problem, double work) {
  const DType type = text.dtype;
  return make_case(matmul_limit(type), work, [=](Operands& operands) -> PreparedKernel {
    const AttentionTensors x = attention_tensors(operands, problem, type);
    MemoryPool* pool = &operands.pool();
    const auto run = [=, bounds = problem.bounds()] {
      kernels::attention_forward(x.operands(), bounds, problem.options, x.out, x.log_sum_exp, *pool);
    };
    return {run, [=] {
              fp64::Results wanted = attention_reference(problem, x, x.out);
              return std::vector{
                  attention_result("out", x.out, std::move(wanted.out), type),
                  attention_result("log_sum_exp", x.log_sum_exp, std::move(wanted.log_sum_exp), DType::f32)};
            }};
  });
}

KernelCase make_attention_backward(const CaseText& text, const fp64::Problem& problem, double work) {
  const DType type = text.dtype;
  return make_case(matmul_limit(type), work, [=](Operands& operands) -> PreparedKernel {
    const AttentionTensors x = attention_tensors(operands, problem, type);
    MemoryPool* pool = &operands.pool();
    const std::vector<std::int64_t> bounds = problem.bounds();
    kernels::attention_forward(x.operands(), bounds, problem.options, x.out, x.log_sum_exp, *pool);
    const TensorView dout = operands.values(type, x.out.shape());
    const kernels::AttentionGradients gradients{
        operands.zeros(type, x.q.shape()), operands.zeros(type, x.k.shape()),
        operands.zeros(type, x.v.shape()),
        problem.sinks ? operands.zeros(DType::f32, x.sinks.shape()) : TensorView()};
    const auto run = [=] {
      kernels::attention_backward(dout, x.operands(), x.out, x.log_sum_exp, bounds, problem.options,
                                  gradients, *pool);
    };
    return {
        run, [=] {
          fp64::Results wanted = attention_reference(problem, x, dout);
          std::vector results{attention_result("dq", gradients.q, std::move(wanted.dq), type),
                              attention_result("dk", gradients.k, std::move(wanted.dk), type),
                              attention_result("dv", gradients.v, std::move(wanted.dv), type)};
          if (problem.sinks) {
            results.push_back(attention_result("dsinks", gradients.sinks, std::move(wanted.dsinks), type));
            results.back().scale = std::sqrt(static_cast<double>(problem.tokens()));
          }
          return results;
        }};
  });
}

/// Forward is two products, scores and values; backward five: scores again, and the gradients of
/// probabilities, queries, keys and values.
KernelCase make_attention(const CaseText& text) {
  const fp64::Problem problem = problem_of(text);
  const double score = score_flops(problem);
  const auto dim = static_cast<double>(problem.options.head_dim);
  const auto value_dim = static_cast<double>(problem.value_dim());
  return text.is("backward") ? make_attention_backward(text, problem, score * (3 * dim + 2 * value_dim))
                             : make_attention_forward(text, problem, score * (dim + value_dim));
}

/// Frequencies as of a base of 10000.
std::vector<float> inverse_frequencies(std::int64_t pairs) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < pairs; ++i) {
    result.push_back(std::pow(10000.0F, -static_cast<float>(i) / static_cast<float>(pairs)));
  }
  return result;
}

/// Elements in the order that the reference knows, halves from a head's first on; back is its inverse.
Matrix as_halves(const Matrix& x, std::int64_t head_dim, std::int64_t turning,
                 const kernels::RotaryLayout& layout, bool back) {
  Matrix y = x;
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      const std::int64_t i = c % head_dim - layout.first;
      if (i < -layout.first || i >= turning) {
        continue;
      }
      const std::int64_t head = c - c % head_dim;
      const bool neighbours = layout.pairs == kernels::RotaryPairs::neighbours;
      // Those before `first` go behind the ones that turn.
      const std::int64_t place = i < 0        ? turning + i + layout.first
                                 : neighbours ? i / 2 + i % 2 * turning / 2
                                              : i;
      (back ? y(t, c) : y(t, head + place)) = back ? x(t, head + place) : x(t, c);
    }
  }
  return y;
}

KernelCase make_rotary(const CaseText& text) {
  const std::int64_t tokens = text.sizes[0];
  const std::int64_t heads = text.sizes[1];
  const std::int64_t head_dim = text.sizes[2];
  const std::int64_t first = text.number("first");
  const std::int64_t turning = text.has("R") ? text.number("R") : head_dim - first;
  require(turning % 2 == 0 && turning >= 0 && first + turning <= head_dim,
          "case '{}': R={} elements of heads of {} turn behind the first {}; R is even and fits", text.text,
          turning, head_dim, first);
  const kernels::RotaryLayout layout{
      text.is("neighbours") ? kernels::RotaryPairs::neighbours : kernels::RotaryPairs::halves, first};
  const bool backward = text.is("backward");
  const DType type = text.dtype;
  const double work = 2.0 * static_cast<double>(tokens * heads * turning * size_of(type));
  return make_case(Limit::copy, work, [=](Operands& operands) -> PreparedKernel {
    const TensorView x = operands.values(type, {tokens, heads, head_dim});
    std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens));
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<float> frequencies = inverse_frequencies(turning / 2);
    const auto run = [=] {
      kernels::rotary(x, positions, frequencies, 1.0F,
                      backward ? kernels::Rotation::backward : kernels::Rotation::forward, layout);
    };
    return {run, [=] {
              const reference::Rotary rotary{{frequencies.begin(), frequencies.end()}, 1.0, head_dim};
              const std::vector<std::int64_t> wide(positions.begin(), positions.end());
              const Matrix ordered = as_halves(doubles(x), head_dim, turning, layout, false);
              const Matrix turned = backward ? reference::rotate_backward(ordered, wide, rotary)
                                             : reference::rotate(ordered, wide, rotary);
              // An angle is a product in f32: it is off by a unit in the last place of the largest.
              const double angle = static_cast<double>(tokens) * 0x1p-23;
              return std::vector{result_in("x", x, as_halves(turned, head_dim, turning, layout, true),
                                           rounding(type) + 2e-6 + angle, 1.0)};
            }};
  });
}

}  // namespace

std::vector<CaseBuilder> attention_builders() {
  return {{{"attention",
            kDirections,
            kFloats,
            "TxHEADSxD",
            {{.name = "kv_heads", .meaning = "heads of keys and values; else HEADS"},
             {.name = "value_dim", .meaning = "size of a value head; else D"},
             {.name = "window", .meaning = "tokens that a token sees; else all before it"},
             {.name = "lengths", .least = 0, .list = true, .meaning = "of the sequences; else one of T"}},
            {{"sinks"}},
            "attention backward bf16 2048x16x64 kv_heads=4 window=512 lengths=1500,0,548"},
           make_attention},
          {{"rotary",
            kDirections,
            kFloats,
            "TxHEADSxD",
            {{.name = "R", .least = 0, .meaning = "elements of a head that turn; else all behind first"},
             {.name = "first", .least = 0, .meaning = "elements of a head before them"}},
            {{"halves", "neighbours"}},
            "rotary bf16 4096x16x128 R=64 neighbours"},
           make_rotary}};
}

}  // namespace expedite::bench
