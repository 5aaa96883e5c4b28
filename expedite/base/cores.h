// How many cores there are to compute on.
#pragma once

namespace expedite {

struct Cores {
  int machine = 1;  // of this machine (or of the part that its container may use), at least 1
  int bound = 1;    // of those, the ones that this process may run on
};

/// Cores, not hardware threads: two threads of one core share its arithmetic. Throws Error when hwloc cannot
/// tell.
[[nodiscard]] Cores count_cores();

}  // namespace expedite
