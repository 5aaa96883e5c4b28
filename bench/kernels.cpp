#include "bench/kernels.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/kernel_cases.h"
#include "bench/yardstick.h"
#include "expedite/base/error.h"
#include "expedite/base/median.h"
#include "expedite/kernels/bf16_products.h"
#include "expedite/kernels/product.h"

namespace expedite::bench {
namespace {

constexpr double kSampleSeconds = 0.02;  // short kernels repeat until a sample takes this long
constexpr double kCaseSeconds = 1.5;     // more samples are taken until a case took this long
constexpr std::size_t kFewestSamples = 7;
constexpr std::size_t kMostSamples = 41;

struct Result {
  std::string name;
  std::string shape;
  std::string_view limit;
  bool flops;          // whether speeds are FLOP/s or bytes/s
  double seconds;      // of one run of the kernel, median
  double speed;        // median
  double limit_speed;  // of the yardstick, median
  double floor;        // seconds that the work would take at the yardstick's speed
  double ratio;        // median over samples of kernel's speed to yardstick's
};

/// Seconds of one run, averaged over `runs`.
double time_runs(const std::function<void()>& run, int runs) {
  const double begin = seconds();
  for (int i = 0; i < runs; ++i) {
    run();
  }
  return (seconds() - begin) / runs;
}

Result measure(const KernelCase& subject, Yardstick& yardstick) {
  const std::function<void()> run = subject.prepare();
  run();  // touches memory and makes primitives
  const double once = time_runs(run, 1);
  const int runs = std::max(1, static_cast<int>(kSampleSeconds / once));
  std::vector<double> times;
  std::vector<double> limits;
  std::vector<double> ratios;
  const double begin = seconds();
  double before = yardstick.sample();
  while (times.size() < kFewestSamples || (times.size() < kMostSamples && seconds() - begin < kCaseSeconds)) {
    times.push_back(time_runs(run, runs));
    const double after = yardstick.sample();
    const double limit = (before + after) / 2;  // of the moments around the kernel
    ratios.push_back(subject.work / times.back() / limit);
    limits.push_back(limit);
    before = after;
  }
  const double time = median(times);
  const double limit_speed = median(limits);
  return {.name = subject.name,
          .shape = subject.shape,
          .limit = yardstick.name(),
          .flops = subject.limit != Limit::copy,
          .seconds = time,
          .speed = subject.work / time,
          .limit_speed = limit_speed,
          .floor = subject.work / limit_speed,
          .ratio = median(ratios)};
}

/// Yardsticks, each made when it is first needed.
class Yardsticks {
 public:
  Yardstick& of(Limit limit) {
    auto& place = made_[static_cast<std::size_t>(limit)];
    if (!place) {
      place = limit == Limit::copy ? copy_bandwidth()
                                   : matmul_peak(limit == Limit::bf16_matmul ? DType::bf16 : DType::f32);
    }
    return *place;
  }

 private:
  std::array<std::unique_ptr<Yardstick>, 3> made_;
};

void print(const Result& result) {
  fmt::print("{:<24} {:<36} {:>9.3f} {:>8.1f} {} {:>6.1f} % of {:.1f} ({})\n", result.name, result.shape,
             result.seconds * 1e3, result.speed / 1e9, result.flops ? "GFLOP/s" : "GB/s   ",
             result.ratio * 100, result.limit_speed / 1e9, result.limit);
  std::fflush(stdout);
}

void write_json(const std::vector<Result>& results, const std::string& path) {
  nlohmann::json lines = nlohmann::json::array();
  for (const Result& result : results) {
    lines.push_back({{"name", result.name},
                     {"shape", result.shape},
                     {"time_ms", result.seconds * 1e3},
                     {"floor_ms", result.floor * 1e3},
                     {"ratio", result.ratio},
                     {"limit", result.limit},
                     {"unit", result.flops ? "GFLOP/s" : "GB/s"},
                     {"speed", result.speed / 1e9},
                     {"limit_speed", result.limit_speed / 1e9}});
  }
  std::ofstream file(path);
  file << lines.dump(2) << '\n';
  file.close();
  require(file.good(), "cannot write {}; choose another --json path", path);
}

}  // namespace

int run_kernel_bench(const KernelBenchOptions& options) {
  require(options.threads >= 1, "a benchmark needs at least one thread, not {}", options.threads);
  const kernels::ThreadLimit limit(options.threads);
  Yardsticks yardsticks;
  std::vector<Result> results;
  fmt::print("{}\n", kernels::describe_bf16_products());
  fmt::print("{:<24} {:<36} {:>9} {:>16} {:>8}\n", "kernel", "shape", "time ms", "speed", "of limit");
  for (const KernelCase& subject : kernel_cases()) {
    if (subject.name.find(options.filter) == std::string::npos &&
        subject.shape.find(options.filter) == std::string::npos) {
      continue;
    }
    results.push_back(measure(subject, yardsticks.of(subject.limit)));
    print(results.back());
  }
  if (!options.json_path.empty()) {
    write_json(results, options.json_path);
  }
  if (results.empty()) {
    fmt::print("no kernel's name or shape contains \"{}\"\n", options.filter);
    return 1;
  }
  return 0;
}

}  // namespace expedite::bench
