#include "expedite/plan/finalists.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "expedite/base/error.h"

namespace expedite::plan {

std::vector<Finalist> simulate_finalists(const CostContext& context, const std::vector<Candidate>& best,
                                         std::int64_t count, int threads) {
  std::vector<Finalist> finalists;
  for (const Candidate& candidate : best) {
    finalists.push_back({candidate, std::nullopt, {}});
  }
  const std::size_t simulated = std::min(finalists.size(), static_cast<std::size_t>(count));
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next.fetch_add(1); i < simulated; i = next.fetch_add(1)) {
      try {
        finalists[i].simulated = simulate_step(context, finalists[i].candidate.strategy);
      } catch (const Error& error) {
        finalists[i].not_simulated = error.what();
      }
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < std::min(threads, static_cast<int>(simulated)); ++i) {
    others.emplace_back(work);
  }
  work();
  others.clear();
  std::ranges::stable_sort(finalists, {}, &Finalist::step_seconds);
  return finalists;
}

}  // namespace expedite::plan
