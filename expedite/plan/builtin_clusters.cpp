#include "expedite/plan/builtin_clusters.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>

#include "expedite/base/error.h"
#include "expedite/base/text.h"

namespace expedite::plan {
namespace {

constexpr double kIntraLatency = 4e-6;
constexpr double kInterLatency = 10e-6;
constexpr double kMessageRate = 1e6;

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

const std::vector<DeviceFacts>& published_devices() {
  // Peaks are of dense products. Ascend A2's bins are named after FP16 (376, 313, 280 T); their BF16 is
  // lower.
  static const std::vector<DeviceFacts> kDevices = {
      {"a100", "A100-80GB", 312, 312, 0, 0, 80, 2.0, 8, 300, 25,
       "arXiv:2505.11432 table 4; network: arXiv:2104.04473"},
      {"a100-roce", "A100-80GB-RoCE", 312, 312, 0, 0, 80, 2.0, 8, 300, 25,
       "as A100, network of arXiv:2401.10241"},
      {"ampere", "A100-class(Ampere)", 312, 312, 0, 0, 80, 2.0, 8, 300, 25,
       "as A100: the device of arXiv:2402.15627 is not named"},
      {"a800", "A800-80GB", 312, 312, 0, 0, 80, 2.0, 8, 200, 12.5, "arXiv:2406.06563 appendix B"},
      {"h100", "H100-80GB", 989.5, 989.5, 1979, 0, 80, 3.35, 8, 450, 50, "arXiv:2504.14960"},
      // Of 200 GB/s nominal between the devices of a node 160 are usable (arXiv:2412.19437).
      {"h800", "H800-80GB", 989, 989, 1979, 0, 80, 3.4, 8, 160, 50,
       "arXiv:2505.11432 table 4; arXiv:2412.19437"},
      {"h20", "H20-96GB", 148, 148, 296, 0, 96, 4.0, 8, 450, 50, "arXiv:2505.11432 table 4"},
      {"h200", "H200-141GB", 989, 989, 1979, 0, 141, 4.8, 8, 450, 50, "MLCommons training v4.1 systems"},
      {"b200", "B200", 2250, 2250, 4500, 9000, 180, 8.0, 8, 900, 50,
       "glennklockwood.com B200; verda.com/blog/gb300-nvl72-architecture"},
      {"b300", "B300", 2250, 2250, 4500, 13125, 270, 8.0, 8, 900, 100,
       "glennklockwood.com/garden/processors/B300; verda.com"},
      {"gb200", "GB200", 2500, 2500, 5000, 10000, 186, 8.0, 72, 900, 50,
       "glennklockwood.com; verda.com; MLCommons"},
      {"gb300", "GB300", 2500, 2500, 5000, 15000, 279, 8.0, 72, 900, 100,
       "verda.com/blog/gb300-nvl72-architecture; glennklockwood.com"},
      {"ascend-910b", "Ascend-910B-A2-376T", 353.9, 376, 0, 0, 64, 1.76, 8, 196, 25,
       "Ascend/msmodeling tensor_cast/device.py @1e5a50b1"},
      {"ascend-910b-313t", "Ascend-910B-A2-313T", 294.9, 313, 0, 0, 64, 1.76, 8, 196, 25,
       "Ascend/msmodeling tensor_cast/device.py @1e5a50b1"},
      {"ascend-910b-280t", "Ascend-910B-A2-280T", 245.8, 280, 0, 0, 64, 1.76, 8, 196, 25,
       "Ascend/msmodeling tensor_cast/device.py @1e5a50b1"},
      // Software sees each of a package's two dies as one device.
      {"ascend-910c", "Ascend-910C-A3-die", 353.9, 376, 0, 0, 64, 1.76, 768, 196, 25,
       "Ascend/msmodeling tensor_cast/device.py @1e5a50b1"},
      {"ascend-910c-560t", "Ascend-910C-A3-560T-die", 245.8, 280, 0, 0, 64, 1.76, 768, 196, 25,
       "Ascend/msmodeling tensor_cast/device.py @1e5a50b1"},
  };
  return kDevices;
}

const DeviceFacts* find_device_facts(std::string_view name) {
  const auto found = std::ranges::find_if(published_devices(), [&](const DeviceFacts& facts) {
    return same_name(facts.name, name) || same_name(facts.kind, name);
  });
  return found == published_devices().end() ? nullptr : &*found;
}

cost::Cluster make_cluster(const DeviceFacts& facts, std::int64_t devices) {
  require(devices >= 1, "a cluster needs at least 1 device, not {}", devices);
  std::int64_t per_node = std::min(facts.domain, devices);
  while (devices % per_node != 0) {
    --per_node;
  }
  cost::Device device{.kind = std::string(facts.kind),
                      .memory_bytes = std::llround(facts.memory_gb * 1e9),
                      .memory_read_bytes_per_s = facts.memory_tb_per_s * 1e12,
                      .memory_copy_bytes_per_s = facts.memory_tb_per_s * 1e12};
  const auto add_peak = [&](const char* precision, double tflops) {
    if (tflops > 0.0) {
      device.peaks.push_back({precision, tflops * 1e12});
    }
  };
  add_peak("bf16", facts.bf16_tflops);
  add_peak("fp16", facts.fp16_tflops);
  add_peak("fp8", facts.fp8_tflops);
  add_peak("fp4", facts.fp4_tflops);
  const auto link = [](std::string_view name, double latency, double gb_per_s) {
    return cost::Link{.name = std::string(name),
                      .latency_s = latency,
                      .message_rate_per_s = kMessageRate,
                      .bandwidth_bytes_per_s = gb_per_s * 1e9,
                      .pair_bandwidth_bytes_per_s = gb_per_s * 1e9};
  };
  return {.name = std::string(facts.name),
          .nodes = devices / per_node,
          .ranks_per_node = per_node,
          .devices = {device},
          .links = {link(cost::kIntraNode, kIntraLatency, facts.scale_up_gb_per_s),
                    link(cost::kInterNode, kInterLatency, facts.scale_out_gb_per_s)}};
}

cost::Cluster load_cluster(const std::string& name_or_path, std::int64_t devices) {
  if (const DeviceFacts* facts = find_device_facts(name_or_path)) {
    return make_cluster(*facts, devices);
  }
  std::error_code ignored;
  if (!std::filesystem::exists(name_or_path, ignored)) {
    std::vector<std::string> names;
    for (const DeviceFacts& facts : published_devices()) {
      names.emplace_back(facts.name);
    }
    fail("cluster {}: neither a YAML file nor a built-in cluster; the nearest is {}, and built in are {}",
         name_or_path, nearest_name(name_or_path, names), join_choices(names));
  }
  return cost::read_cluster(name_or_path);
}

}  // namespace expedite::plan
