// Measures how long the kernels of a step take on the cores of a rank, all ranks at once.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "expedite/comm/process_grid.h"
#include "expedite/cost/kernel_times.h"

namespace expedite::bench {

/// On the calling thread's OpenMP team of `threads`. Of one thread the time counts that it runs, not that in
/// which others run on its core: `sharing` says how much that is. Every size is measured in several passes
/// over all, so that what disturbs the machine for a while does not hit all samples of one; their
/// middle_mean counts, and of the ranks' the median. `say` is told what comes next, on all ranks at once.
/// Collective; the same on all ranks.
[[nodiscard]] std::vector<cost::KernelTimes> kernel_times(const comm::ProcessGrid& grid, bool quick,
                                                          int threads, std::int64_t ranks_on_machine,
                                                          const std::function<void(std::string_view)>& say);

}  // namespace expedite::bench
