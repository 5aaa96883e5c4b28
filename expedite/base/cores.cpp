#include "expedite/base/cores.h"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <ctime>

#include <algorithm>
#include <memory>

#include "expedite/base/error.h"

namespace expedite {
namespace {

using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

Topology load_topology() {
  hwloc_topology_t handle = nullptr;
  require(hwloc_topology_init(&handle) == 0, "hwloc cannot start, so the machine's cores cannot be counted");
  Topology topology(handle, &hwloc_topology_destroy);
  require(hwloc_topology_load(handle) == 0, "hwloc cannot tell how many cores this machine has");
  return topology;
}

}  // namespace

Cores count_cores() {
  const Topology topology = load_topology();
  hwloc_topology_t handle = topology.get();
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

Processors allowed_processors() {
  cpu_set_t allowed;
  static_assert(8 * sizeof(allowed) == Processors().size());
  Processors processors;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return processors;
  }
  for (std::size_t i = 0; i < processors.size(); ++i) {
    processors[i] = CPU_ISSET(i, &allowed) != 0;
  }
  return processors;
}

std::vector<CacheSize> cache_sizes() {
  const Topology topology = load_topology();
  std::vector<CacheSize> caches;
  for (const hwloc_obj_type_t type :
       {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE}) {
    const hwloc_obj_t cache = hwloc_get_obj_by_type(topology.get(), type, 0);
    if (cache == nullptr || cache->attr->cache.size == 0) {
      continue;
    }
    const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology.get(), cache->cpuset, HWLOC_OBJ_CORE);
    caches.push_back({.level = static_cast<int>(cache->attr->cache.depth),
                      .bytes = static_cast<std::int64_t>(cache->attr->cache.size),
                      .cores = std::max(1, cores)});
  }
  return caches;
}

double thread_cpu_seconds() {
  timespec time{};
  require(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0, "the system does not tell a thread's CPU time");
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::int64_t machine_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  require(pages > 0 && page_bytes > 0, "the system does not tell how much memory this machine has");
  return std::int64_t{pages} * page_bytes;
}

}  // namespace expedite
