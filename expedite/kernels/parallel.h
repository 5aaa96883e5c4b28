// Splits a loop over the cores a rank owns. Kernels run on the compute stream's thread, which leads an OpenMP
// team.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace expedite::kernels {

/// How many threads a team of this thread is sure to have: what omp_set_num_threads asked for, unless the
/// environment (OMP_THREAD_LIMIT, OMP_DYNAMIC) may give fewer. oneDNN computes wrong results in a team
/// smaller than it counted on.
[[nodiscard]] inline int team_size() {
  return omp_get_dynamic() != 0 ? 1 : std::min(omp_get_max_threads(), omp_get_thread_limit());
}

/// Calls body(begin, end) on contiguous, disjoint parts of [0, count) that together cover it. A part has at
/// least `grain` items, so that small loops stay on the calling thread. The parts depend on the number of
/// threads: a reduction over them must not depend on where they are cut. `body` must not throw.
template <typename Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  const std::int64_t most = (count + grain - 1) / std::max<std::int64_t>(grain, 1);
  const auto threads = static_cast<int>(std::min<std::int64_t>(team_size(), most));
  if (threads <= 1) {
    if (count > 0) {
      body(std::int64_t{0}, count);
    }
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const std::int64_t team = omp_get_num_threads();
    const std::int64_t member = omp_get_thread_num();
    const std::int64_t begin = count * member / team;
    const std::int64_t end = count * (member + 1) / team;
    if (begin < end) {
      body(begin, end);
    }
  }
}

}  // namespace expedite::kernels
