// Clusters of published devices by name, for planning without a probe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/cost/cluster.h"

namespace expedite::plan {

/// What is published of one device and its links.
struct DeviceFacts {
  std::string_view name;  // "h800", as users write it
  std::string_view kind;  // "H800-80GB", as measured runs and data sheets write it
  double bf16_tflops = 0.0;
  double fp16_tflops = 0.0;
  double fp8_tflops = 0.0;  // 0: none
  double fp4_tflops = 0.0;
  double memory_gb = 0.0;           // 10^9 bytes
  double memory_tb_per_s = 0.0;     // 10^12 bytes/s
  std::int64_t domain = 8;          // devices that the fast links join
  double scale_up_gb_per_s = 0.0;   // of one device, one way
  double scale_out_gb_per_s = 0.0;  // of one device, one way
  std::string_view source;
};

[[nodiscard]] const std::vector<DeviceFacts>& published_devices();

/// By name or kind, in any case; null when there is none.
[[nodiscard]] const DeviceFacts* find_device_facts(std::string_view name);

/// A cluster of so many devices. Latencies are not published per device: 4 us inside a domain and 10 us
/// between them are assumed.
[[nodiscard]] cost::Cluster make_cluster(const DeviceFacts& facts, std::int64_t devices);

/// A built-in name or the path of a YAML file. Throws Error.
[[nodiscard]] cost::Cluster load_cluster(const std::string& name_or_path, std::int64_t devices);

}  // namespace expedite::plan
