#include "bench/yardstick.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "expedite/kernels/parallel.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::bench {
namespace {

constexpr double kSampleSeconds = 0.02;

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

/// One product with its operands.
class Product {
 public:
  Product(const dnnl::engine& engine, const LargeProduct& size, dnnl::memory::data_type type)
      : flops_(2.0 * static_cast<double>(size.m * size.n * size.k)) {
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

  /// FLOP/s over at least `duration` seconds.
  double rate(dnnl::stream& stream, double duration) {
    const double begin = seconds();
    double elapsed = 0.0;
    double done = 0.0;
    while (elapsed < duration) {
      primitive_.execute(stream, arguments_);
      stream.wait();
      done += flops_;
      elapsed = seconds() - begin;
    }
    return done / elapsed;
  }

 private:
  double flops_;
  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

class MatmulPeak : public Yardstick {
 public:
  explicit MatmulPeak(DType type) : type_(type) {
    constexpr int kTrials = 5;  // the first also warms up
    double best = 0.0;
    for (const LargeProduct& size : kLargeProducts) {
      Product product(engine_, size,
                      type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32);
      std::array<double, kTrials> rates{};
      for (double& rate : rates) {
        rate = product.rate(stream_, kSampleSeconds);
      }
      std::nth_element(rates.begin(), rates.begin() + kTrials / 2, rates.end());
      if (rates[kTrials / 2] > best) {
        best = rates[kTrials / 2];
        fastest_ = std::make_unique<Product>(product);
      }
    }
  }

  double sample() override { return fastest_->rate(stream_, kSampleSeconds); }
  [[nodiscard]] std::string_view name() const override {
    return type_ == DType::bf16 ? "bf16 matmul" : "f32 matmul";
  }

 private:
  DType type_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
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
