#include "expedite/kernels/matmul.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <vector>

#include "expedite/kernels/arguments.h"
#include "expedite/kernels/bf16_products.h"
#include "expedite/kernels/elementwise.h"
#include "expedite/kernels/parallel.h"
#include "expedite/kernels/product.h"
#include "expedite/kernels/scratch.h"
#include "expedite/kernels/widened_product.h"

namespace expedite::kernels {
namespace {

// oneDNN's products are computed in tiles whose bounds depend on the shape alone, so that results do not
// depend on the number of threads, and whose sizes are few, so that primitives are found again when M
// changes.
struct TileSize {
  std::int64_t rows;
  std::int64_t columns;
};
constexpr TileSize kTile{.rows = 256, .columns = 512};
constexpr TileSize kGradientTile{.rows = 512, .columns = 1024};
// Where so many products come together that all threads are busy, larger tiles pack operands less often.
constexpr TileSize kBatchGradientTile{.rows = 1024, .columns = 1024};
constexpr std::int64_t kLargeBatch = 8;
// The bits of a widened product do not depend on tiles. The larger they are, the less is packed twice; a
// thread should have several.
constexpr std::int64_t kMostWidened = 512;
constexpr std::int64_t kLeastWidened = 128;
constexpr std::int64_t kTilesOfThread = 4;
// What is left of M is a multiple of this and a remainder.
constexpr std::int64_t kStep = 16;
// Tiles have exactly this many rows where oneDNN's sums depend on their number.
constexpr std::int64_t kPaddedRows = 48;

struct Range {
  std::int64_t begin;
  std::int64_t size;
};

/// [0, extent) as pieces of `largest`, then one multiple of kStep, then the rest.
std::vector<Range> cut_unevenly(std::int64_t extent, std::int64_t largest) {
  std::vector<Range> pieces;
  for (std::int64_t begin = 0; begin < extent;) {
    const std::int64_t left = extent - begin;
    const std::int64_t size = left >= largest ? largest : left >= kStep ? left / kStep * kStep : left;
    pieces.push_back({begin, size});
    begin += size;
  }
  return pieces;
}

/// [0, extent) as pieces of `size`; the last may be smaller.
std::vector<Range> cut(std::int64_t extent, std::int64_t size) {
  std::vector<Range> pieces;
  for (std::int64_t begin = 0; begin < extent; begin += size) {
    pieces.push_back({begin, std::min(size, extent - begin)});
  }
  return pieces;
}

/// [0, columns) as nearly equal pieces of at most `largest`.
std::vector<Range> cut_evenly(std::int64_t columns, std::int64_t largest) {
  constexpr std::int64_t kVector = 64;
  const std::int64_t pieces = (columns + largest - 1) / largest;
  const std::int64_t each = (columns + pieces - 1) / pieces;
  return cut(columns, (each + kVector - 1) / kVector * kVector);
}

/// A product of matrices that exist and fit.
struct Problem {
  ConstTensorView a;
  ConstTensorView b;
  TensorView dst;
  MatmulOptions options;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;

  [[nodiscard]] ConstTensorView a_tile(Range rows) const {
    return options.transpose_a ? a.columns_slice(rows.begin, rows.size) : a.slice(rows.begin, rows.size);
  }
  [[nodiscard]] ConstTensorView b_tile(Range columns) const {
    return options.transpose_b ? b.slice(columns.begin, columns.size)
                               : b.columns_slice(columns.begin, columns.size);
  }
  [[nodiscard]] TensorView dst_tile(Range rows, Range columns) const {
    return dst.slice(rows.begin, rows.size).columns_slice(columns.begin, columns.size);
  }
};

Problem check(const MatmulOperands& operands, MatmulOptions options) {
  const auto& [a, b, dst] = operands;
  require_matrix("a of a matmul", a);
  require_matrix("b of a matmul", b);
  require_matrix("dst of a matmul", dst);
  const std::int64_t m = a.size(options.transpose_a ? 1 : 0);
  const std::int64_t k = a.size(options.transpose_a ? 0 : 1);
  const std::int64_t n = b.size(options.transpose_b ? 0 : 1);
  if (b.size(options.transpose_b ? 1 : 0) != k || dst.size(0) != m || dst.size(1) != n) [[unlikely]] {
    fail("a matmul of {}{} and {}{} does not give {}", to_string(a.shape()),
         options.transpose_a ? " transposed" : "", to_string(b.shape()),
         options.transpose_b ? " transposed" : "", to_string(dst.shape()));
  }
  const DType type = a.dtype();
  require((type == DType::f32 || type == DType::bf16) && b.dtype() == type,
          "matmul takes two f32 or two bf16 matrices, not {} and {}", name_of(type), name_of(b.dtype()));
  require(dst.dtype() == DType::f32 || dst.dtype() == type, "matmul of {} cannot write {}", name_of(type),
          name_of(dst.dtype()));
  require(!options.accumulate || dst.dtype() == DType::f32, "matmul accumulates into f32 only, not into {}",
          name_of(dst.dtype()));
  return {a, b, dst, options, m, n, k};
}

ProductShape shape_of(ConstTensorView a, ConstTensorView b, ConstTensorView dst, MatmulOptions options) {
  return {.m = dst.size(0),
          .n = dst.size(1),
          .k = a.size(options.transpose_a ? 0 : 1),
          .a_stride = a.row_stride(),
          .b_stride = b.row_stride(),
          .dst_stride = dst.row_stride(),
          .type = a.dtype(),
          .dst_type = dst.dtype(),
          .transpose_a = options.transpose_a,
          .transpose_b = options.transpose_b,
          .accumulate = options.accumulate};
}

/// How the tiles of a problem are laid and computed on this CPU.
struct Plan {
  std::vector<Range> rows;
  std::vector<Range> columns;
  bool widened = false;         // computed by widened_product
  std::int64_t least_rows = 1;  // shorter tiles are padded with rows of zeros
  bool dense = false;           // strided operands are copied
  bool divisible = false;       // oneDNN may divide a tile among threads without changing results
};

bool is_widened(const Problem& problem) {
  return problem.a.dtype() == DType::bf16 && bf16_ways().matmul == Bf16Products::widened;
}

/// Rows of f32 are independent in dense copies, or in tiles that all have one height.
void plan_copies(const Problem& problem, Plan& plan) {
  const std::int64_t columns = plan.columns.front().size;
  const RowRule rule = row_rule({.n = columns,
                                 .k = problem.k,
                                 .a_stride = problem.k,
                                 .b_stride = problem.options.transpose_b ? problem.k : columns,
                                 .dst_stride = columns,
                                 .transpose_b = problem.options.transpose_b,
                                 .accumulate = problem.options.accumulate});
  plan.dense = rule == RowRule::independent;
  if (!plan.dense) {
    plan.rows = cut(problem.m, kPaddedRows);
    plan.least_rows = kPaddedRows;
  }
}

Plan make_plan(const Problem& problem, TileSize tile) {
  const MatmulOptions& options = problem.options;
  Plan plan{.rows = cut_unevenly(problem.m, tile.rows),
            .columns = cut_evenly(problem.n, tile.columns),
            .widened = is_widened(problem)};
  if (plan.widened || options.transpose_a) {
    return plan;
  }
  const RowRule rule = row_rule(shape_of(problem.a, problem.b, problem.dst, options));
  if (rule == RowRule::independent) {
    plan.columns = {{0, problem.n}};  // only whole rows of dst are dense
    plan.divisible = true;
  } else if (rule == RowRule::independent_from_two) {
    plan.least_rows = 2;
  } else {
    plan_copies(problem, plan);
  }
  return plan;
}

/// Names of scratch memory.
struct CopyOfA;
struct CopyOfB;
struct CopyOfDst;

bool usable(const Plan& plan, ConstTensorView x, std::int64_t rows) {
  return x.size(0) >= rows && (!plan.dense || x.row_stride() == x.size(1));
}

/// Scratch memory for a copy of x that has at least `rows` rows.
template <typename Name>
TensorView room_for(ConstTensorView x, std::int64_t rows) {
  const Shape shape{std::max(rows, x.size(0)), x.size(1)};
  return {thread_scratch<Name>(shape.elements() * size_of(x.dtype())), x.dtype(), shape};
}

void copy_padded(ConstTensorView x, TensorView copy) {
  convert(x, copy.slice(0, x.size(0)));
  fill_zero(copy.slice(x.size(0), copy.size(0) - x.size(0)));
}

template <typename Name>
ConstTensorView usable_copy(const Plan& plan, ConstTensorView x, std::int64_t rows) {
  if (usable(plan, x, rows)) {
    return x;
  }
  const TensorView copy = room_for<Name>(x, rows);
  copy_padded(x, copy);
  return copy;
}

struct Tile {
  const Problem* problem;
  const Plan* plan;
  Range rows;
  Range columns;
};

void compute_tile(const Tile& tile, int threads) {
  const Plan& plan = *tile.plan;
  const MatmulOptions& options = tile.problem->options;
  const ConstTensorView all_a = tile.problem->a_tile(tile.rows);
  const ConstTensorView all_b = tile.problem->b_tile(tile.columns);
  const TensorView dst = tile.problem->dst_tile(tile.rows, tile.columns);
  if (plan.widened) {
    widened_product({all_a, all_b, dst}, options);
    return;
  }
  const ConstTensorView a = usable_copy<CopyOfA>(plan, all_a, options.transpose_a ? 0 : plan.least_rows);
  const ConstTensorView b = usable_copy<CopyOfB>(plan, all_b, 0);
  const bool in_place = usable(plan, dst, plan.least_rows);
  const TensorView result = in_place ? dst : room_for<CopyOfDst>(dst, plan.least_rows);
  if (!in_place && options.accumulate) {
    copy_padded(dst, result);
  }
  ProductShape shape = shape_of(a, b, result, options);
  shape.threads = threads;
  run_product(shape, a.data(), b.data(), result.data());
  if (!in_place) {
    convert(result.slice(0, dst.size(0)), dst);
  }
}

/// Tiles side by side, each on one thread.
void compute_in_parallel(std::span<const Tile> tiles) {
  std::exception_ptr error;  // an exception must not leave a parallel region
  std::mutex error_mutex;
  parallel_for(static_cast<std::int64_t>(tiles.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    try {
      const ThreadLimit limit(1);
      for (std::int64_t i = begin; i < end; ++i) {
        compute_tile(tiles[i], 1);
      }
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      error = std::current_exception();
    }
  });
  if (error) {
    std::rethrow_exception(error);
  }
}

/// Tiles of widened products for a team of `threads`.
TileSize widened_tile(std::span<const Problem> problems, int threads) {
  TileSize tile{.rows = kMostWidened, .columns = kMostWidened};
  const auto tiles = [&] {
    std::int64_t count = 0;
    for (const Problem& problem : problems) {
      count += ((problem.m + tile.rows - 1) / tile.rows) * ((problem.n + tile.columns - 1) / tile.columns);
    }
    return count;
  };
  while (threads > 1 && tile.columns > kLeastWidened && tiles() < kTilesOfThread * threads) {
    (tile.rows >= tile.columns ? tile.rows : tile.columns) /= 2;
  }
  return tile;
}

TileSize tile_of(std::span<const Problem> problems, MatmulOptions options) {
  if (!problems.empty() && is_widened(problems.front())) {
    return widened_tile(problems, team_size());
  }
  if (!options.transpose_a) {
    return kTile;
  }
  return std::ssize(problems) >= kLargeBatch ? kBatchGradientTile : kGradientTile;
}

void compute(std::span<const Problem> problems, MatmulOptions options) {
  const TileSize size = tile_of(problems, options);
  std::vector<Plan> plans;
  plans.reserve(problems.size());
  std::vector<Tile> tiles;
  bool divisible = true;
  for (const Problem& problem : problems) {
    const Plan& plan = plans.emplace_back(make_plan(problem, size));
    divisible = divisible && plan.divisible;
    for (const Range columns : plan.columns) {
      for (const Range rows : plan.rows) {
        tiles.push_back({&problem, &plan, rows, columns});
      }
    }
  }
  const int threads = team_size();
  if (divisible && std::ssize(tiles) < threads && omp_in_parallel() == 0) {
    for (const Tile& tile : tiles) {
      compute_tile(tile, threads);
    }
    return;
  }
  compute_in_parallel(tiles);
}

}  // namespace

void matmul_batch(std::span<const MatmulOperands> products, MatmulOptions options) {
  std::vector<Problem> problems;
  problems.reserve(products.size());
  for (const MatmulOperands& operands : products) {
    const Problem problem = check(operands, options);
    if (problem.m > 0 && problem.n > 0 && problem.k > 0) {
      problems.push_back(problem);
    } else if (!options.accumulate) {
      fill_zero(problem.dst);  // a sum over nothing
    }
  }
  compute(problems, options);
}

void matmul(ConstTensorView a, ConstTensorView b, TensorView dst, MatmulOptions options) {
  const MatmulOperands operands{a, b, dst};
  matmul_batch({&operands, 1}, options);
}

}  // namespace expedite::kernels
