#include "expedite/kernels/product.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

#include "expedite/base/error.h"
#include "expedite/kernels/scratch.h"

namespace expedite::kernels {
namespace {

/// oneDNN's CPU. Streams are per thread: a stream may not be shared.
const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  thread_local dnnl::stream local(engine());
  return local;
}

dnnl::memory::data_type dnnl_type(DType type) {
  return type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, DType type, std::int64_t stride,
                          bool transpose) {
  const dnnl::memory::dims strides =
      transpose ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, dnnl_type(type), strides};
}

struct Product {
  dnnl::matmul primitive;
  dnnl::memory::desc scratchpad;
};

struct ShapeHash {
  std::size_t operator()(const ProductShape& shape) const {
    const std::int64_t flags =
        static_cast<std::int64_t>(shape.threads) << 8 | static_cast<std::int64_t>(shape.type) << 5 |
        static_cast<std::int64_t>(shape.dst_type) << 3 | static_cast<std::int64_t>(shape.transpose_a) << 2 |
        static_cast<std::int64_t>(shape.transpose_b) << 1 | static_cast<std::int64_t>(shape.accumulate);
    std::uint64_t hash = 0;
    for (const std::int64_t value :
         {shape.m, shape.n, shape.k, shape.a_stride, shape.b_stride, shape.dst_stride, flags}) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

/// A map that is read by many threads and seldom added to. References stay valid.
template <typename Value>
class ShapeTable {
 public:
  template <typename Make>
  const Value& find_or_make(const ProductShape& shape, const Make& make) {
    {
      const std::shared_lock lock(mutex_);
      if (const auto found = values_.find(shape); found != values_.end()) {
        return *found->second;
      }
    }
    const std::unique_lock lock(mutex_);
    auto& place = values_[shape];
    if (!place) {
      place = std::make_unique<Value>(make(shape));
    }
    return *place;
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<ProductShape, std::unique_ptr<Value>, ShapeHash> values_;
};

dnnl::memory::desc a_of(const ProductShape& shape) {
  return matrix(shape.m, shape.k, shape.type, shape.a_stride, shape.transpose_a);
}
dnnl::memory::desc b_of(const ProductShape& shape) {
  return matrix(shape.k, shape.n, shape.type, shape.b_stride, shape.transpose_b);
}
dnnl::memory::desc dst_of(const ProductShape& shape) {
  return matrix(shape.m, shape.n, shape.dst_type, shape.dst_stride, false);
}

/// Nothing when oneDNN has no implementation.
std::optional<dnnl::matmul::primitive_desc> describe(const ProductShape& shape) {
  const ThreadLimit limit(shape.threads);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::desc description(a_of(shape), b_of(shape), dst_of(shape));
  dnnl::matmul::primitive_desc result(description, attributes, engine(), true);
  if (!result) {
    return std::nullopt;
  }
  return result;
}

/// The shape that a primitive is made for. K of a transposed `a` counts tokens, another number every step,
/// and stays open. (It also makes oneDNN take its older code, which is the faster one on such products.)
ProductShape key_of(const ProductShape& shape) {
  ProductShape key = shape;
  if (shape.transpose_a) {
    key.k = DNNL_RUNTIME_DIM_VAL;
  }
  return key;
}

Product make_product(const ProductShape& shape) {
  const ThreadLimit limit(shape.threads);
  const auto description = describe(shape);
  require(description.has_value(), "oneDNN has no {} matrix product of {} x {} x {} on this CPU",
          name_of(shape.type), shape.m, shape.n, shape.k);
  return {dnnl::matmul(*description), description->scratchpad_desc()};
}

/// Blocked kernels ("brgemm") sum over K in one order for every row, and so does the older bf16 code but for
/// its matrix-vector product. The older f32 code picks a path by the number of rows.
RowRule probe(const ProductShape& shape) {
  const auto description = describe(shape);
  if (!description) {
    return RowRule::unsupported;
  }
  if (std::string_view(description->impl_info_str()).starts_with("brg")) {
    return RowRule::independent;
  }
  return shape.type == DType::bf16 ? RowRule::independent_from_two : RowRule::fixed_count;
}

}  // namespace

RowRule row_rule(const ProductShape& shape) {
  constexpr std::int64_t kUsualRows = 256;
  static ShapeTable<RowRule> table;
  ProductShape usual = key_of(shape);
  usual.m = kUsualRows;
  if (usual.transpose_a) {
    usual.a_stride = std::max(usual.a_stride, kUsualRows);
  }
  return table.find_or_make(usual, probe);
}

void run_product(const ProductShape& shape, const void* a, const void* b, void* dst) {
  static ShapeTable<Product> table;
  try {
    const ThreadLimit limit(shape.threads);
    const Product& product = table.find_or_make(key_of(shape), make_product);
    // oneDNN takes operands it only reads as non-const pointers too.
    const auto operand = [](const dnnl::memory::desc& description, const void* data) {
      return dnnl::memory(description, engine(), const_cast<void*>(data));
    };
    product.primitive.execute(
        stream(),
        {{DNNL_ARG_SRC, operand(a_of(shape), a)},
         {DNNL_ARG_WEIGHTS, operand(b_of(shape), b)},
         {DNNL_ARG_DST, operand(dst_of(shape), dst)},
         {DNNL_ARG_SCRATCHPAD, operand(product.scratchpad, thread_scratch<Product>(static_cast<std::int64_t>(
                                                               product.scratchpad.get_size())))}});
    stream().wait();
  } catch (const dnnl::error& error) {
    fail("oneDNN failed in a {} matrix product of {} x {} x {}: {}", name_of(shape.type), shape.m, shape.n,
         shape.k, error.what());
  }
}

}  // namespace expedite::kernels
