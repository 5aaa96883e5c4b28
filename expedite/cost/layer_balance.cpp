#include "expedite/cost/layer_balance.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "expedite/base/error.h"

namespace expedite::cost {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// The best way to cut all items into `parts` runs, where best[end] of the first runs and run(begin, end) of
/// one more join to join(best, run), and less is better.
class Cuts {
 public:
  using Run = std::function<double(int begin, int end)>;
  using Join = std::function<double(double best, double run)>;

  Cuts(int items, int parts, const Run& run, const Join& join)
      : items_(items), parts_(parts), best_(table(kNever)), begin_(table(-1.0)) {
    at(best_, 0, 0) = 0.0;
    for (int part = 1; part <= parts; ++part) {
      for (int end = part; end <= items - (parts - part); ++end) {
        for (int begin = part - 1; begin < end; ++begin) {
          const double joined = join(at(best_, part - 1, begin), run(begin, end));
          if (joined < at(best_, part, end)) {
            at(best_, part, end) = joined;
            at(begin_, part, end) = begin;
          }
        }
      }
    }
  }

  [[nodiscard]] double best() { return at(best_, parts_, items_); }
  [[nodiscard]] std::vector<int> bounds() {
    std::vector<int> bounds(static_cast<std::size_t>(parts_) + 1, 0);
    int end = items_;
    for (int part = parts_; part > 0; --part) {
      bounds[static_cast<std::size_t>(part)] = end;
      end = static_cast<int>(at(begin_, part, end));
    }
    return bounds;
  }

 private:
  [[nodiscard]] std::vector<double> table(double value) const {
    return std::vector<double>(static_cast<std::size_t>(parts_ + 1) * static_cast<std::size_t>(items_ + 1),
                               value);
  }
  double& at(std::vector<double>& table, int part, int end) const {
    return table[static_cast<std::size_t>(part) * static_cast<std::size_t>(items_ + 1) +
                 static_cast<std::size_t>(end)];
  }

  int items_;
  int parts_;
  std::vector<double> best_;   // by number of runs and end
  std::vector<double> begin_;  // of the last of them
};

}  // namespace

std::vector<int> balanced_bounds(std::span<const double> costs, int parts) {
  const int items = static_cast<int>(costs.size());
  require(parts >= 1 && items >= parts,
          "{} items cannot be cut into {} virtual stages of at least one: take 1 to {}", items, parts, items);
  std::vector<double> sum = {0.0};
  for (const double cost : costs) {
    require(cost >= 0.0 && std::isfinite(cost), "an item to place costs {}", cost);
    sum.push_back(sum.back() + cost);
  }
  const auto run = [&](int begin, int end) {
    return sum[static_cast<std::size_t>(end)] - sum[static_cast<std::size_t>(begin)];
  };
  const double largest =
      Cuts(items, parts, run, [](double best, double next) { return std::max(best, next); }).best();
  return Cuts(items, parts, run,
              [&](double best, double next) { return next <= largest ? best + next * next : kNever; })
      .bounds();
}

}  // namespace expedite::cost
