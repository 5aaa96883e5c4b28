#include "bench/yardstick.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "expedite/kernels/bf16_products.h"
#include "expedite/kernels/matmul.h"
#include "expedite/kernels/parallel.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::bench {
namespace {

constexpr double kYardstickSeconds = 0.02;

struct LargeProduct {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  bool packed;  // weights in the layout that oneDNN likes best
};
constexpr LargeProduct kLargeProducts[] = {
    {1024, 1024, 1024, false}, {2048, 2048, 2048, false}, {1024, 1024, 1024, true},
    {2048, 1024, 1024, true},  {2048, 2048, 2048, true},
};

/// One large product with its operands.
class Product {
 public:
  virtual ~Product() = default;
  virtual void run() = 0;

  /// FLOP/s over at least `duration` seconds.
  double rate(double duration) {
    const double begin = seconds();
    double elapsed = 0.0;
    double done = 0.0;
    while (elapsed < duration) {
      run();
      done += flops_;
      elapsed = seconds() - begin;
    }
    return done / elapsed;
  }

 protected:
  explicit Product(const LargeProduct& size) : flops_(2.0 * static_cast<double>(size.m * size.n * size.k)) {}

 private:
  double flops_;
};

class OneDnnProduct : public Product {
 public:
  OneDnnProduct(const dnnl::engine& engine, const LargeProduct& size, dnnl::memory::data_type type)
      : Product(size), stream_(engine) {
    using Tag = dnnl::memory::format_tag;
    const dnnl::memory::desc rows({size.m, size.k}, type, Tag::ab);
    const dnnl::memory::desc weights({size.k, size.n}, type, size.packed ? Tag::any : Tag::ba);
    const dnnl::memory::desc result({size.m, size.n}, type, Tag::ab);
    const dnnl::matmul::primitive_desc description({rows, weights, result}, engine);
    primitive_ = dnnl::matmul(description);
    const auto filled = [&](const dnnl::memory::desc& operand) {
      dnnl::memory memory(operand, engine);
      std::memset(memory.get_data_handle(), 0x3C, operand.get_size());  // small numbers, in both types
      return memory;
    };
    arguments_ = {{DNNL_ARG_SRC, filled(description.src_desc())},
                  {DNNL_ARG_WEIGHTS, filled(description.weights_desc())},
                  {DNNL_ARG_DST, filled(description.dst_desc())}};
  }

  void run() override {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::stream stream_;
  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

/// Ours, of bf16 widened to f32.
class WidenedProduct : public Product {
 public:
  explicit WidenedProduct(const LargeProduct& size)
      : Product(size),
        rows_(filled({size.m, size.k})),
        weights_(filled({size.n, size.k})),
        result_(filled({size.m, size.n})),
        operands_{rows_.view(DType::bf16, {size.m, size.k}), weights_.view(DType::bf16, {size.n, size.k}),
                  result_.view(DType::bf16, {size.m, size.n})} {}

  void run() override { kernels::matmul_batch({&operands_, 1}, {.transpose_b = true}); }

 private:
  Buffer filled(Shape shape) {
    Buffer buffer = pool_.allocate(shape.elements() * size_of(DType::bf16), MemoryCategory::workspace);
    std::memset(buffer.data(), 0x3C, static_cast<std::size_t>(buffer.bytes()));
    return buffer;
  }

  MemoryPool pool_;
  Buffer rows_;
  Buffer weights_;
  Buffer result_;
  kernels::MatmulOperands operands_;
};

class MatmulPeak : public Yardstick {
 public:
  explicit MatmulPeak(DType type) : type_(type) {
    using Type = dnnl::memory::data_type;
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    for (const LargeProduct& size : kLargeProducts) {
      // Of bf16 too: whoever widens operands for nothing is as fast.
      consider(std::make_unique<OneDnnProduct>(engine, size, Type::f32));
      if (type == DType::bf16 && kernels::bf16_cpu().native) {
        consider(std::make_unique<OneDnnProduct>(engine, size, Type::bf16));
      }
    }
    if (type == DType::bf16 && kernels::bf16_ways().matmul == kernels::Bf16Products::widened) {
      consider(std::make_unique<WidenedProduct>(kLargeProducts[0]));
    }
  }

  double sample() override { return fastest_->rate(kYardstickSeconds); }
  [[nodiscard]] std::string_view name() const override {
    return type_ == DType::bf16 ? "bf16 matmul" : "f32 matmul";
  }

 private:
  void consider(std::unique_ptr<Product> product) {
    constexpr int kTrials = 5;  // the first also warms up
    std::array<double, kTrials> rates{};
    for (double& rate : rates) {
      rate = product->rate(kYardstickSeconds);
    }
    std::nth_element(rates.begin(), rates.begin() + kTrials / 2, rates.end());
    if (rates[kTrials / 2] > best_) {
      best_ = rates[kTrials / 2];
      fastest_ = std::move(product);
    }
  }

  DType type_;
  double best_ = 0.0;
  std::unique_ptr<Product> fastest_;
};

class CopyBandwidth : public Yardstick {
 public:
  CopyBandwidth()
      : source_(pool_.allocate(kBytes, MemoryCategory::workspace)),
        destination_(pool_.allocate(kBytes, MemoryCategory::workspace)) {
    std::memset(source_.data(), 1, kBytes);
    std::memset(destination_.data(), 2, kBytes);
  }

  double sample() override {
    const double begin = seconds();
    kernels::parallel_for(kBytes, kGrain, [&](std::int64_t first, std::int64_t last) {
      std::memcpy(static_cast<std::byte*>(destination_.data()) + first,
                  static_cast<const std::byte*>(source_.data()) + first,
                  static_cast<std::size_t>(last - first));
    });
    return 2.0 * static_cast<double>(kBytes) / (seconds() - begin);
  }
  [[nodiscard]] std::string_view name() const override { return "copy"; }

 private:
  static constexpr std::int64_t kBytes = std::int64_t{192} << 20;
  static constexpr std::int64_t kGrain = std::int64_t{1} << 20;

  MemoryPool pool_;  // the kernels' memory comes from one too
  Buffer source_;
  Buffer destination_;
};

}  // namespace

std::unique_ptr<Yardstick> matmul_peak(DType type) {
  return std::make_unique<MatmulPeak>(type);
}

std::unique_ptr<Yardstick> copy_bandwidth() {
  return std::make_unique<CopyBandwidth>();
}

}  // namespace expedite::bench
