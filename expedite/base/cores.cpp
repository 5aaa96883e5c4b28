#include "expedite/base/cores.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "expedite/base/error.h"

namespace expedite {

Cores count_cores() {
  hwloc_topology_t handle = nullptr;
  require(hwloc_topology_init(&handle) == 0, "hwloc cannot start, so the machine's cores cannot be counted");
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(handle,
                                                                                    &hwloc_topology_destroy);
  require(hwloc_topology_load(handle) == 0, "hwloc cannot tell how many cores this machine has");
  Cores cores;
  cores.machine = std::max(1, hwloc_get_nbobjs_by_type(handle, HWLOC_OBJ_CORE));
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> mine(hwloc_bitmap_alloc(),
                                                                           &hwloc_bitmap_free);
  cores.bound = cores.machine;
  if (hwloc_get_cpubind(handle, mine.get(), HWLOC_CPUBIND_PROCESS) == 0) {
    int bound = 0;
    for (int i = 0; i < cores.machine; ++i) {
      const hwloc_obj_t core = hwloc_get_obj_by_type(handle, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
      bound += core != nullptr && hwloc_bitmap_intersects(core->cpuset, mine.get()) != 0 ? 1 : 0;
    }
    cores.bound = std::max(1, bound);
  }
  return cores;
}

}  // namespace expedite
