#include "bench/kernels.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/check_kernel.h"
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
  std::optional<KernelCheck> check = {};
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
  const std::function<void()> run = subject.prepare().run;
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
  fmt::print("{:<24} {:<36} {:>9.3f} {:>8.1f} {} {:>6.1f} % of {:.1f} ({})", result.name, result.shape,
             result.seconds * 1e3, result.speed / 1e9, result.flops ? "GFLOP/s" : "GB/s   ",
             result.ratio * 100, result.limit_speed / 1e9, result.limit);
  if (result.check) {
    fmt::print("  {}: error {:.1e} of {:.1e}", result.check->result, result.check->error,
               result.check->tolerance);
    if (!result.check->failure.empty()) {
      fmt::print("\n  FAILED: {}", result.check->failure);
    }
  }
  fmt::print("\n");
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
    if (result.check) {
      lines.back().update({{"checked", result.check->result},
                           {"error", result.check->error},
                           {"tolerance", result.check->tolerance},
                           {"failure", result.check->failure}});
    }
  }
  std::ofstream file(path);
  file << lines.dump(2) << '\n';
  file.close();
  require(file.good(), "cannot write {}; choose another --json path", path);
}

/// The lines of a file without its comments.
std::vector<std::string> read_cases(const std::string& path) {
  std::ifstream file(path);
  require(file.good(), "cannot read {}; --cases wants a file with a case per line", path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    line.erase(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") != std::string::npos) {
      lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace

int bench_kernel_cases(const std::vector<KernelCase>& cases, bool check, const KernelBenchOptions& options) {
  require(options.threads >= 1, "a benchmark needs at least one thread, not {}", options.threads);
  const kernels::ThreadLimit limit(options.threads);
  Yardsticks yardsticks;
  std::vector<Result> results;
  fmt::print("{}\n", kernels::describe_bf16_products());
  fmt::print("{:<24} {:<36} {:>9} {:>16} {:>8}\n", "kernel", "shape", "time ms", "speed", "of limit");
  bool failed = false;
  for (const KernelCase& subject : cases) {
    if (subject.name.find(options.filter) == std::string::npos &&
        subject.shape.find(options.filter) == std::string::npos) {
      continue;
    }
    const auto checked = check ? std::optional(check_kernel(subject)) : std::nullopt;
    failed = failed || (checked && !checked->failure.empty());
    results.push_back(measure(subject, yardsticks.of(subject.limit)));
    results.back().check = checked;
    print(results.back());
  }
  if (!options.json_path.empty()) {
    write_json(results, options.json_path);
  }
  if (results.empty()) {
    fmt::print("no kernel's name or shape contains \"{}\"\n", options.filter);
    return 1;
  }
  return failed ? 1 : 0;
}

int run_kernel_bench(const KernelBenchOptions& options) {
  if (std::ranges::count(options.cases, "help") > 0) {
    fmt::print("{}", case_help());
    return 0;
  }
  std::vector<std::string> lines = options.cases;
  if (!options.cases_path.empty()) {
    std::ranges::copy(read_cases(options.cases_path), std::back_inserter(lines));
  }
  if (lines.empty()) {
    require(options.cases_path.empty(), "{} holds no case; write one per line", options.cases_path);
    return bench_kernel_cases(kernel_cases(), false, options);
  }
  std::vector<KernelCase> cases;
  for (const std::string& line : lines) {
    cases.push_back(kernel_case(line));
  }
  return bench_kernel_cases(cases, true, options);
}

}  // namespace expedite::bench
