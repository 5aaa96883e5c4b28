#include "bench/kernel_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "bench/kernel_sizes.h"
#include "expedite/base/cores.h"
#include "expedite/base/median.h"
#include "expedite/model/quick_cluster.h"

namespace expedite::bench {
namespace {

/// The sizes of point `index` of a grid; the last axis is the fastest.
std::vector<std::int64_t> sizes_of(const std::vector<cost::GridAxis>& axes, std::int64_t index) {
  std::vector<std::int64_t> sizes(axes.size());
  for (std::size_t axis = axes.size(); axis-- > 0;) {
    const std::int64_t count = std::ssize(axes[axis].sizes);
    sizes[axis] = axes[axis].sizes[static_cast<std::size_t>(index % count)];
    index /= count;
  }
  return sizes;
}

std::int64_t points_of(const std::vector<cost::GridAxis>& axes) {
  std::int64_t points = 1;
  for (const cost::GridAxis& axis : axes) {
    points *= std::ssize(axis.sizes);
  }
  return points;
}

/// Wall time of a team; of one thread the time that it ran, so that it does not matter who else wants its
/// core.
double now(int threads) {
  using Clock = std::chrono::steady_clock;
  return threads == 1 ? thread_cpu_seconds()
                      : std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

/// Seconds of one run, from as many as take `least`, the first of them run number `first`. With `apart` one
/// more before makes what is made once.
double seconds_of(const SizedKernel::Run& run, double least, int threads, std::int64_t first, bool apart) {
  if (apart) {
    run(first);
  }
  const double begin = now(threads);
  std::int64_t runs = 0;
  double taken = 0.0;
  do {
    run(first + ++runs);
    taken = now(threads) - begin;
  } while (taken < least);
  return std::max(taken, 1e-9) / static_cast<double>(runs);
}

}  // namespace

std::vector<cost::KernelTimes> kernel_times(const comm::ProcessGrid& grid, bool quick, int threads,
                                            std::int64_t ranks_on_machine,
                                            const std::function<void(std::string_view)>& say) {
  // Where ranks take turns on cores, everything takes longer.
  const bool turns = ranks_on_machine * threads > count_cores().machine;
  const int passes = quick ? 1 : turns ? 3 : 6;
  const double least = quick ? 0.0005 : 0.0006;
  constexpr double kLong = 0.01;
  const std::vector<SizedKernel> kernels = sized_kernels(quick);
  std::vector<std::vector<std::vector<double>>> samples(kernels.size());  // [kernel][point][pass]
  OperandMemory memory;
  for (int pass = 0; pass < passes; ++pass) {
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const SizedKernel& kernel = kernels[i];
      say(fmt::format("{} {}{}", name_of(kernel.dtype), kernel.name,
                      passes > 1 ? fmt::format(", {} of {}", pass + 1, passes) : ""));
      memory.forget();
      samples[i].resize(static_cast<std::size_t>(points_of(kernel.axes)));
      for (std::size_t point = 0; point < samples[i].size(); ++point) {
        // What takes long is a mean over a long time already.
        if (std::ssize(samples[i][point]) >= 2 &&
            samples[i][point].back() * static_cast<double>(kernel.units) > kLong) {
          continue;
        }
        const auto sizes = sizes_of(kernel.axes, static_cast<std::int64_t>(point));
        // Somewhere else each time, so that nothing is left in a cache from the point before.
        constexpr std::int64_t kPrime = 7919;
        const std::int64_t first = kPrime * (1 + pass + passes * static_cast<std::int64_t>(point));
        const double seconds =
            seconds_of(kernel.prepare(memory, sizes), least, threads, first, pass == 0 || point == 0);
        samples[i][point].push_back(seconds / static_cast<double>(kernel.units));
      }
    }
  }
  std::vector<cost::KernelTimes> times;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    cost::KernelTimes measured{.kernel = kernels[i].name, .dtype = kernels[i].dtype, .axes = kernels[i].axes};
    for (const std::vector<double>& of_point : samples[i]) {
      measured.seconds.push_back(middle_mean(of_point));
    }
    model::agree(grid.world(), measured.seconds);
    times.push_back(std::move(measured));
  }
  return times;
}

}  // namespace expedite::bench
