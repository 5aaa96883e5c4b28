#include "bench/kernel_sizes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "expedite/kernels/attention.h"
#include "expedite/kernels/cross_entropy.h"
#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/embedding.h"
#include "expedite/kernels/grouped_matmul.h"
#include "expedite/kernels/matmul.h"
#include "expedite/kernels/optimizer.h"
#include "expedite/kernels/rms_norm.h"
#include "expedite/kernels/rotary.h"
#include "expedite/kernels/router.h"
#include "expedite/kernels/rows.h"
#include "expedite/kernels/swiglu.h"
#include "expedite/moe/dispatch_plan.h"

namespace expedite::bench {
namespace {

using Sizes = std::span<const std::int64_t>;
using Run = SizedKernel::Run;
using cost::GridAxis;

constexpr int kRoles = 6;
constexpr std::int64_t kRoleBytes = std::int64_t{64} << 20;
constexpr std::int64_t kBeyondCaches = std::int64_t{128} << 20;
constexpr float kEpsilon = 1e-6F;

std::vector<std::int64_t> some(bool quick, std::vector<std::int64_t> all) {
  if (quick && all.size() > 2) {
    all = {all.front(), all[all.size() / 2], all.back()};
  }
  return all;
}

// ---- Products

/// a[m, k] · b[k, n] as `options` store them. What a layer has just made is in the caches; weights are not,
/// nor is what forward has left for the gradient of weights, nor where a result is kept.
SizedKernel matmul_kernel(const char* name, DType type, bool quick, kernels::MatmulOptions options) {
  SizedKernel kernel{.name = name, .dtype = type};
  // Of a weight gradient m are the outputs and k the tokens.
  const std::vector<std::int64_t> tokens = some(quick, {16, 32, 64, 128, 256, 1024});
  const std::vector<std::int64_t> widths = some(quick, {16, 64, 128, 256, 512, 1024});
  std::vector<std::int64_t> depths = some(quick, {64, 128, 256, 512, 1024});
  if (type == DType::f32) {
    depths.insert(depths.begin(), 16);  // the experts, in a router's gradient
  }
  kernel.axes = {{"m", options.transpose_a ? widths : tokens},
                 {"n", widths},
                 {"k", options.transpose_a ? tokens : depths}};
  kernel.prepare = [=](OperandMemory& memory, Sizes sizes) -> Run {
    const std::int64_t m = sizes[0];
    const std::int64_t n = sizes[1];
    const std::int64_t k = sizes[2];
    const DType result = options.accumulate ? DType::f32 : type;
    // A router's products, of f32, write where nothing has been for long.
    const bool kept = options.accumulate || options.transpose_b || type == DType::f32;
    const std::int64_t cold = n * k * size_of(type) + (kept ? m * n * size_of(result) : 0);
    const std::int64_t sets = OperandMemory::sets(cold);
    return [=, &memory](std::int64_t call) {
      const std::int64_t set = call % sets;
      kernels::matmul(memory.matrix(0, type, options.transpose_a ? Shape{k, m} : Shape{m, k}),
                      memory.matrix(1, type, options.transpose_b ? Shape{n, k} : Shape{k, n}, set),
                      memory.matrix(2, result, {m, n}, kept ? set : 0), options);
    };
  };
  return kernel;
}

constexpr std::int64_t kExperts = 8;

enum class Gradient { none, input, weight };

/// y[m, n] from x[m, k] for each of some experts, or a gradient of it. Nothing is in the caches.
SizedKernel grouped_kernel(const char* name, DType type, bool quick, Gradient gradient) {
  SizedKernel kernel{.name = name, .dtype = type, .units = kExperts};
  const std::vector<std::int64_t> widths = some(quick, {64, 128, 256, 512, 1024});
  kernel.axes = {{"m", some(quick, {16, 32, 64, 128, 256, 1024})}, {"n", widths}, {"k", widths}};
  kernel.prepare = [=](OperandMemory& memory, Sizes sizes) -> Run {
    const std::int64_t n = sizes[1];
    const std::int64_t k = sizes[2];
    const kernels::RowBlocks blocks =
        kernels::row_blocks(std::vector<std::int64_t>(static_cast<std::size_t>(kExperts), sizes[0]));
    const std::int64_t rows = blocks.total;
    const DType result = gradient == Gradient::weight ? DType::f32 : type;
    const std::int64_t sets =
        OperandMemory::sets(rows * (n + k) * size_of(type) + kExperts * n * k * size_of(result));
    return [=, &memory](std::int64_t call) {
      const std::int64_t set = call % sets;
      const TensorView x = memory.matrix(0, type, {rows, k}, set);
      const TensorView y = memory.matrix(1, type, {rows, n}, set);
      const TensorView w = memory.matrix(2, result, {kExperts, n, k}, set);
      const auto read = [&](const TensorView& matrix) {
        return kernels::blocks_of(ConstTensorView(matrix), blocks);
      };
      switch (gradient) {
        case Gradient::none:
          return kernels::grouped_matmul(read(x), w, kernels::blocks_of(y, blocks));
        case Gradient::input:
          return kernels::grouped_matmul_input_grad(read(y), w, kernels::blocks_of(x, blocks));
        case Gradient::weight:
          return kernels::grouped_matmul_weight_grad(read(y), read(x), w, true);
      }
    };
  };
  return kernel;
}

void add_products(std::vector<SizedKernel>& kernels, DType type, bool quick) {
  kernels.push_back(matmul_kernel("matmul", type, quick, {.transpose_b = true}));
  kernels.push_back(matmul_kernel("matmul_input_grad", type, quick, {}));
  kernels.push_back(
      matmul_kernel("matmul_weight_grad", type, quick, {.transpose_a = true, .accumulate = true}));
  kernels.push_back(grouped_kernel("grouped_matmul", type, quick, Gradient::none));
  kernels.push_back(grouped_kernel("grouped_matmul_input_grad", type, quick, Gradient::input));
  kernels.push_back(grouped_kernel("grouped_matmul_weight_grad", type, quick, Gradient::weight));
}

// ---- Attention

/// One query head of one sequence.
SizedKernel attention_kernel(const char* name, DType type, bool quick, bool backward) {
  constexpr std::int64_t kHeads = 4;
  constexpr std::int64_t kKvHeads = 2;
  SizedKernel kernel{.name = name, .dtype = type, .units = kHeads};
  kernel.axes = {{"tokens", some(quick, {64, 256, 1024})}, {"head_dim", {32, 64, 128}}};
  kernel.prepare = [=](OperandMemory& memory, Sizes sizes) -> Run {
    const std::int64_t tokens = sizes[0];
    const std::int64_t query = kHeads * sizes[1];
    const std::int64_t width = query + 2 * kKvHeads * sizes[1];
    const kernels::AttentionOptions options{.heads = kHeads, .kv_heads = kKvHeads, .head_dim = sizes[1]};
    const std::vector<std::int64_t> bounds = {0, tokens};
    const auto parts = [=](const TensorView& qkv) {
      return std::array{qkv.columns_slice(0, query), qkv.columns_slice(query, (width - query) / 2),
                        qkv.columns_slice((width + query) / 2, (width - query) / 2)};
    };
    constexpr std::int64_t kMostSets = 12;  // that forward is run on beforehand
    const std::int64_t sets =
        backward ? std::min(OperandMemory::sets(tokens * (width + query) * size_of(type)), kMostSets) : 1;
    const auto forward = [=, &memory](std::int64_t set) {
      const auto [q, k, v] = parts(memory.matrix(0, type, {tokens, width}, set));
      kernels::attention_forward({q, k, v}, bounds, options, memory.matrix(1, type, {tokens, query}, set),
                                 memory.matrix(2, DType::f32, {kHeads, tokens}, set), memory.pool());
    };
    if (!backward) {
      return [=](std::int64_t) { forward(0); };
    }
    for (std::int64_t set = 0; set < sets; ++set) {
      forward(set);
    }
    return [=, &memory](std::int64_t call) {
      const std::int64_t set = call % sets;
      const auto [q, k, v] = parts(memory.matrix(0, type, {tokens, width}, set));
      const auto [dq, dk, dv] = parts(memory.matrix(3, type, {tokens, width}));
      kernels::attention_backward(
          memory.matrix(4, type, {tokens, query}), {q, k, v}, memory.matrix(1, type, {tokens, query}, set),
          memory.matrix(2, DType::f32, {kHeads, tokens}, set), bounds, options, {dq, dk, dv}, memory.pool());
    };
  };
  return kernel;
}

SizedKernel rotary_kernel(DType type, bool quick) {
  SizedKernel kernel{.name = "rotary", .dtype = type};
  kernel.axes = {{"tokens", some(quick, {16, 1024})}, {"heads", {1, 8}}, {"head_dim", {32, 128}}};
  kernel.prepare = [=](OperandMemory& memory, Sizes sizes) -> Run {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(sizes[0]));
    for (std::size_t i = 0; i < positions.size(); ++i) {
      positions[i] = static_cast<std::int32_t>(i);
    }
    const std::vector<float> turns(static_cast<std::size_t>(sizes[2] / 2), 0.1F);
    const TensorView x = memory.matrix(0, type, {sizes[0], sizes[1], sizes[2]});
    return [=](std::int64_t) { kernels::rotary(x, positions, turns, 1.0F, kernels::Rotation::forward); };
  };
  return kernel;
}

void add_attention(std::vector<SizedKernel>& kernels, DType type, bool quick) {
  kernels.push_back(attention_kernel("attention", type, quick, false));
  kernels.push_back(attention_kernel("attention_backward", type, quick, true));
  kernels.push_back(rotary_kernel(type, quick));
}

// ---- Row by row

std::vector<GridAxis> rows_and_columns(bool quick) {
  return {{"rows", some(quick, {16, 256, 2048})}, {"columns", some(quick, {8, 32, 128, 512, 2048})}};
}

/// A kernel over a matrix [rows, columns].
template <typename Prepare>
SizedKernel row_kernel(const char* name, DType type, bool quick, Prepare prepare) {
  SizedKernel kernel{.name = name, .dtype = type, .axes = rows_and_columns(quick)};
  kernel.prepare = [=](OperandMemory& memory, Sizes sizes) -> Run {
    return prepare(memory, sizes[0], sizes[1]);
  };
  return kernel;
}

void add_norms(std::vector<SizedKernel>& kernels, DType type, bool quick) {
  kernels.push_back(row_kernel(
      "rms_norm", type, quick, [=](OperandMemory& memory, std::int64_t rows, std::int64_t columns) {
        const TensorView x = memory.matrix(0, type, {rows, columns});
        const TensorView weight = memory.matrix(1, type, {columns});
        const TensorView inverse_rms = memory.matrix(3, DType::f32, {rows});
        const std::int64_t sets = OperandMemory::sets(rows * columns * size_of(type));
        return [=, &memory](std::int64_t call) {
          kernels::rms_norm(x, weight, kEpsilon, memory.matrix(2, type, {rows, columns}, call % sets),
                            inverse_rms);
        };
      }));
  kernels.push_back(row_kernel(
      "rms_norm_backward", type, quick, [=](OperandMemory& memory, std::int64_t rows, std::int64_t columns) {
        const std::int64_t sets = OperandMemory::sets(rows * columns * size_of(type));
        return [=, &memory](std::int64_t call) {
          const TensorView dy = memory.matrix(0, type, {rows, columns});
          kernels::rms_norm_backward(dy, memory.matrix(1, type, {rows, columns}, call % sets),
                                     memory.matrix(2, type, {columns}), memory.matrix(3, DType::f32, {rows}),
                                     dy, false, memory.matrix(4, DType::f32, {columns}));
        };
      }));
}

void add_elementwise(std::vector<SizedKernel>& kernels, DType type, bool quick) {
  // From f32 into the other type, as a router's gradient is added.
  kernels.push_back(
      row_kernel("add", type, quick, [=](OperandMemory& memory, std::int64_t rows, std::int64_t columns) {
        const TensorView src = memory.matrix(0, type, {rows, columns});
        const std::int64_t sets = OperandMemory::sets(rows * columns * size_of(DType::bf16));
        return [=, &memory](std::int64_t call) {
          kernels::add(src, memory.matrix(1, DType::bf16, {rows, columns}, call % sets));
        };
      }));
  kernels.push_back(
      row_kernel("swiglu", type, quick, [=](OperandMemory& memory, std::int64_t rows, std::int64_t columns) {
        const std::int64_t sets = OperandMemory::sets(rows * columns * 3 * size_of(type));
        return [=, &memory](std::int64_t call) {
          kernels::swiglu(memory.matrix(0, type, {rows, 2 * columns}, call % sets),
                          memory.matrix(1, DType::f32, {rows}),
                          memory.matrix(2, type, {rows, columns}, call % sets));
        };
      }));
  kernels.push_back(row_kernel(
      "swiglu_backward", type, quick, [=](OperandMemory& memory, std::int64_t rows, std::int64_t columns) {
        const std::int64_t sets = OperandMemory::sets(rows * columns * 5 * size_of(type));
        return [=, &memory](std::int64_t call) {
          kernels::swiglu_backward(
              memory.matrix(0, type, {rows, columns}, call % sets),
              memory.matrix(1, type, {rows, 2 * columns}, call % sets), memory.matrix(2, DType::f32, {rows}),
              memory.matrix(3, type, {rows, 2 * columns}, call % sets), memory.matrix(4, DType::f32, {rows}));
        };
      }));
}

/// References to rows in random order.
std::vector<kernels::RowRef> random_rows(std::int64_t count, std::int64_t rows) {
  std::mt19937 generator(1);
  std::uniform_int_distribution<std::int32_t> row(0, static_cast<std::int32_t>(rows - 1));
  std::vector<kernels::RowRef> refs;
  for (std::int64_t i = 0; i < count; ++i) {
    refs.push_back({.source = 0, .row = row(generator)});
  }
  return refs;
}

void add_row_moves(std::vector<SizedKernel>& kernels, DType type, bool quick) {
  kernels.push_back(row_kernel(
      "gather_rows", type, quick, [=](OperandMemory& memory, std::int64_t rows, std::int64_t columns) {
        const std::vector<kernels::RowRef> refs = random_rows(rows, rows);
        const std::int64_t sets = OperandMemory::sets(2 * rows * columns * size_of(type));
        return [=, &memory](std::int64_t call) {
          kernels::gather_rows(
              std::array{ConstTensorView(memory.matrix(0, type, {rows, columns}, call % sets))}, refs,
              memory.matrix(1, type, {rows, columns}, call % sets));
        };
      }));
  SizedKernel sum{.name = "sum_rows", .dtype = type, .axes = rows_and_columns(true)};
  sum.axes.push_back({"summands", {1, 4, 8}});
  sum.prepare = [=](OperandMemory& memory, Sizes sizes) -> Run {
    const std::int64_t rows = sizes[0];
    const std::int64_t columns = sizes[1];
    const std::int64_t most = kRoleBytes / (columns * size_of(type));
    const std::int64_t from = std::min(rows * sizes[2], most);
    const std::vector<kernels::RowRef> refs = random_rows(rows * sizes[2], from);
    const std::int64_t sets = OperandMemory::sets((from + rows) * columns * size_of(type));
    return [=, &memory](std::int64_t call) {
      const TensorView dst = memory.matrix(1, type, {rows, columns}, call % sets);
      kernels::sum_rows(std::array{ConstTensorView(memory.matrix(0, type, {from, columns}, call % sets))},
                        refs, {}, dst);
    };
  };
  kernels.push_back(std::move(sum));
}

// ---- Router and dispatch plan

void fill_random(const TensorView& matrix) {
  std::mt19937 generator(1);
  std::normal_distribution<float> value;
  std::ranges::generate(matrix.span<float>(), [&] { return value(generator); });
}

/// What a router holds of some tokens.
struct Routed {
  TensorView logits, scores, experts, weights;
  kernels::RouterOptions options;

  Routed(OperandMemory& memory, std::int64_t tokens, std::int64_t experts_in_all, std::int64_t topk)
      : logits(memory.matrix(0, DType::f32, {tokens, experts_in_all})),
        scores(memory.matrix(1, DType::f32, {tokens, experts_in_all})),
        experts(memory.matrix(2, DType::i32, {tokens, topk})),
        weights(memory.matrix(3, DType::f32, {tokens, topk})),
        options{.top_k = topk} {
    fill_random(logits);
    route();
  }
  void route() const { kernels::route(logits, {}, options, scores, experts, weights); }
};

std::vector<GridAxis> router_axes(bool quick) {
  return {{"tokens", some(quick, {16, 1024})}, {"experts", some(quick, {8, 32, 128})}, {"topk", {1, 2, 8}}};
}

void add_router(std::vector<SizedKernel>& kernels, bool quick) {
  const auto add = [&](const char* name, const auto& prepare) {
    kernels.push_back({.name = name,
                       .dtype = DType::f32,
                       .axes = router_axes(quick),
                       .prepare = [=](OperandMemory& memory, Sizes sizes) -> Run {
                         return prepare(memory, Routed(memory, sizes[0], sizes[1], sizes[2]));
                       }});
  };
  add("route", [](OperandMemory&, const Routed& routed) { return [=](std::int64_t) { routed.route(); }; });
  add("route_backward", [](OperandMemory& memory, const Routed& routed) {
    const TensorView gradient = memory.matrix(4, DType::f32, routed.logits.shape());
    return [=](std::int64_t) {
      kernels::route_backward(routed.weights, routed.scores, routed.experts, routed.options, gradient);
    };
  });
  // Of a sequence: the losses' sums, and their gradient.
  add("balance_loss", [](OperandMemory&, const Routed& routed) {
    return [=](std::int64_t) {
      std::vector<std::int64_t> counts(static_cast<std::size_t>(routed.scores.columns()), 0);
      std::vector<double> sums(counts.size(), 0.0);
      kernels::count_experts(routed.experts, TensorView(std::span(counts)));
      kernels::sum_scores(routed.scores, sums);
    };
  });
  add("balance_backward", [](OperandMemory& memory, const Routed& routed) {
    const TensorView gradient = memory.matrix(4, DType::f32, routed.logits.shape());
    return [=](std::int64_t) {
      std::vector<std::int64_t> counts(static_cast<std::size_t>(routed.scores.columns()), 0);
      kernels::count_experts(routed.experts, TensorView(std::span(counts)));
      const std::vector<float> of_expert(counts.size(), 0.1F);
      kernels::load_balance_backward(routed.scores, of_expert, kernels::Scoring::softmax, gradient);
    };
  });
  add("dispatch_plan", [](OperandMemory&, const Routed& routed) {
    return [=](std::int64_t) {
      const std::array<std::int64_t, 2> first = {0, routed.scores.columns()};
      const moe::ExpertLayout layout(first, std::array{0}, 0, schedule::Dispatcher::alltoall);
      const moe::DispatchPlan plan(layout, routed.experts, {});
    };
  });
  // Of one rank's tokens, of which there are as many as ranks.
  add("dispatch_plan_complete", [](OperandMemory&, const Routed& routed) {
    return [=](std::int64_t) {
      const std::array<std::int64_t, 2> first = {0, routed.scores.columns()};
      const moe::ExpertLayout layout(first, std::array{0}, 0, schedule::Dispatcher::alltoall);
      moe::DispatchPlan plan(layout, routed.experts, {});
      plan.complete(std::array{plan.choices()});
    };
  });
}

// ---- Vocabulary and optimizer

void add_vocabulary(std::vector<SizedKernel>& kernels, DType type, bool quick) {
  constexpr std::int64_t kVocabulary = 256;
  const auto tokens_of = [](std::int64_t count, std::int64_t vocabulary) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t t = 0; t < count; ++t) {
      tokens.push_back(static_cast<std::int32_t>(t * 31 % vocabulary));
    }
    return tokens;
  };
  kernels.push_back(row_kernel("embedding", type, quick,
                               [=](OperandMemory& memory, std::int64_t rows, std::int64_t columns) {
                                 // Tokens repeat: the rows of the table that a batch needs are few. Backward
                                 // left the result's memory last.
                                 const auto tokens = tokens_of(rows, kVocabulary);
                                 const TensorView table = memory.matrix(0, type, {kVocabulary, columns});
                                 const TensorView dst = memory.matrix(1, type, {rows, columns});
                                 return [=](std::int64_t) { kernels::embedding(table, tokens, dst); };
                               }));
  kernels.push_back(row_kernel(
      "embedding_backward", type, quick, [=](OperandMemory& memory, std::int64_t rows, std::int64_t columns) {
        const auto tokens = tokens_of(rows, kVocabulary);
        const std::int64_t sets = OperandMemory::sets((rows + kVocabulary) * columns * size_of(type));
        return [=, &memory](std::int64_t call) {
          kernels::embedding_backward(memory.matrix(1, type, {rows, columns}), tokens,
                                      memory.matrix(2, DType::f32, {kVocabulary, columns}, call % sets));
        };
      }));
  SizedKernel head{.name = "linear_cross_entropy", .dtype = type};
  head.axes = {{"tokens", some(quick, {64, 512})}, {"hidden", {128, 512}}, {"vocabulary", {256, 2048}}};
  head.prepare = [=](OperandMemory& memory, Sizes sizes) -> Run {
    const auto targets = tokens_of(sizes[0], sizes[2]);
    const TensorView hidden = memory.matrix(0, type, {sizes[0], sizes[1]});
    const TensorView weight = memory.matrix(1, type, {sizes[2], sizes[1]});
    const kernels::CrossEntropyGradients gradients{1e-3F, memory.matrix(2, type, {sizes[0], sizes[1]}),
                                                   memory.matrix(3, DType::f32, {sizes[2], sizes[1]})};
    return [=, &memory](std::int64_t) {
      static_cast<void>(kernels::linear_cross_entropy(hidden, weight, targets, &gradients, memory.pool()));
    };
  };
  kernels.push_back(std::move(head));
}

void add_optimizer(std::vector<SizedKernel>& kernels, DType type, bool quick) {
  const GridAxis elements{"elements", some(quick, {256, 4096, 65536, 1 << 20})};
  SizedKernel adamw{.name = "adamw", .dtype = type, .axes = {elements}};
  adamw.prepare = [=](OperandMemory& memory, Sizes sizes) -> Run {
    // A step goes through all of a model's masters and moments, which no cache holds.
    return [=, &memory](std::int64_t call) {
      const auto vector = [&](int role, DType dtype) { return memory.matrix(role, dtype, {sizes[0]}, call); };
      kernels::adamw({}, vector(0, DType::f32), vector(1, DType::f32), vector(2, DType::f32),
                     vector(3, DType::f32), vector(4, type), true);
    };
  };
  kernels.push_back(std::move(adamw));
  if (type == DType::f32) {
    SizedKernel squares{.name = "sum_of_squares", .dtype = type, .axes = {elements}};
    squares.prepare = [=](OperandMemory& memory, Sizes sizes) -> Run {
      for (int role = 0; role < kRoles; ++role) {
        static_cast<void>(memory.matrix(role, type, {sizes[0]}));  // filled before it is measured
      }
      return [=, &memory](std::int64_t call) {
        const TensorView x = memory.matrix(static_cast<int>(call % kRoles), type, {sizes[0]}, call / kRoles);
        static_cast<void>(kernels::sum_of_squares(x));
      };
    };
    kernels.push_back(std::move(squares));
  }
}

}  // namespace

OperandMemory::OperandMemory() : types_(kRoles, DType::i64) {
  for (int role = 0; role < kRoles; ++role) {
    roles_.push_back(pool_.allocate(kRoleBytes, MemoryCategory::workspace));
  }
}

TensorView OperandMemory::matrix(int role, DType type, const Shape& shape, std::int64_t set) {
  constexpr std::int64_t kLine = 64;
  const auto index = static_cast<std::size_t>(role);
  const Buffer& memory = roles_[index];
  if (types_[index] != type) {  // another type's bits may be numbers that are slow to compute with
    std::memset(memory.data(), 0x3C, static_cast<std::size_t>(memory.bytes()));  // 0.0115 in bf16 and f32
    types_[index] = type;
  }
  const std::int64_t bytes = (shape.elements() * size_of(type) + kLine - 1) / kLine * kLine;
  const std::int64_t fitting = memory.bytes() / bytes;
  require(fitting > 0, "operands of {} bytes", bytes);
  return TensorView(static_cast<std::byte*>(memory.data()) + set % fitting * bytes, type, shape);
}

std::int64_t OperandMemory::sets(std::int64_t bytes) {
  return std::max<std::int64_t>((kBeyondCaches + bytes - 1) / bytes, 1);
}

std::vector<SizedKernel> sized_kernels(bool quick) {
  std::vector<SizedKernel> kernels;
  for (const DType type : {DType::bf16, DType::f32}) {
    add_products(kernels, type, quick || type == DType::f32);
    add_attention(kernels, type, quick);
    add_norms(kernels, type, quick);
    add_elementwise(kernels, type, quick);
    add_row_moves(kernels, type, quick);
    add_vocabulary(kernels, type, quick);
    add_optimizer(kernels, type, quick);
  }
  add_router(kernels, quick);
  return kernels;
}

}  // namespace expedite::bench
