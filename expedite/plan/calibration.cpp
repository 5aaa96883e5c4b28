#include "expedite/plan/calibration.h"

#include <fmt/format.h>

#include <algorithm>

#include "expedite/base/error.h"

namespace expedite::plan {
namespace {

std::size_t device_index(std::string_view kind) {
  const auto& devices = device_ancestry();
  return static_cast<std::size_t>(std::ranges::find(devices, kind, &DeviceAncestry::kind) - devices.begin());
}

std::size_t software_index(std::string_view name) {
  const auto& software = known_software();
  return static_cast<std::size_t>(std::ranges::find(software, name, &Software::name) - software.begin());
}

}  // namespace

const std::array<ConstantPrior, kConstants>& constant_priors() {
  constexpr Scale kFactor = Scale::logarithm;
  constexpr Scale kShare = Scale::log_odds;
  static const std::array<ConstantPrior, kConstants> kPriors = {{
      {"matmul", kShare, 0.75, 0.6, 0.48, 0.32},
      {"matmul_fp8", kShare, 0.65, 0.57, 0.34, 0.23},
      {"matmul_fp4", kShare, 0.45, 0.55, 0.22, 0.15},
      {"half_size", kFactor, 150.0, 0.5, 0.4, 0.2},
      {"expert_half_size", kFactor, 100.0, 0.7, 0.4, 0.3},
      {"attention", kShare, 0.45, 0.55, 0.36, 0.36},
      {"memory", kShare, 0.65, 0.86, 0.43, 0.57},
      {"quantize", kFactor, 1.5, 0.4, 0.1, 0.2},
      {"intra", kShare, 0.7, 0.83, 0.5, 0.33},
      {"inter", kShare, 0.7, 1, 0.83, 0.5},
      {"layer_overhead", kFactor, 0.5e-3, 0.7, 0.2, 0.6},
      {"layer_gap", kFactor, 0.3e-3, 0.7, 0.2, 1.0},
      {"moe_overhead", kFactor, 0.3e-3, 0.7, 0.2, 0.6},
      {"moe_rows", kFactor, 4.0, 0.5, 0.15, 0.5},
      {"step_overhead", kFactor, 0.05, 1.0, 0.2, 0.3},
      {"gradient_exposed", kShare, 0.5, 1, 0.2, 1},
      {"tp_exposed", kShare, 0.9, 0.7, 0, 0.7},
      {"ep_exposed", kShare, 0.8, 1.0, 0.3, 1.2},
      {"pipeline_exposed", kShare, 0.6, 1.2, 0, 1},
      {"activations", kFactor, 1.0, 0.1, 0.0, 0.1},
      {"allocator", kFactor, 1.05, 0.05, 0.0, 0.05},
  }};
  return kPriors;
}

double moved(std::size_t c, double value, double offset) {
  switch (constant_priors()[c].scale) {
    case Scale::logarithm:
      return value * std::exp(offset);
    case Scale::log_odds:
      return value / (value + (1.0 - value) * std::exp(-offset));
  }
  return value;
}

const std::vector<Software>& known_software() {
  // DeepEP and HybridEP send a token once to each node that wants it.
  constexpr auto kDeduplicated = schedule::Dispatcher::hierarchical_dedup;
  // In an order in which parents come first.
  static const std::vector<Software> kSoftware = {
      {.name = "megatron-lm-2021",
       .fused_attention = false,
       .sequence_parallel = false,
       .distributed_optimizer = false,
       .balanced_stages = false,
       .blocking = true},
      {.name = "megatron-lm-2022",
       .parent = "megatron-lm-2021",
       .fused_attention = false,
       .distributed_optimizer = false,
       .balanced_stages = false},
      {.name = "megatron-lm-vtrain",
       .parent = "megatron-lm-2021",
       .fused_attention = false,
       .sequence_parallel = false,
       .distributed_optimizer = false,
       .balanced_stages = false,
       .blocking = true,
       .gradient_bytes = 2.0},
      {.name = "deepspeed-zero3-2021",
       .parent = "megatron-lm-2021",
       .fused_attention = false,
       .sequence_parallel = false,
       .balanced_stages = false},
      {.name = "megatron-lm-2023", .parent = "megatron-lm-2022", .balanced_stages = false},
      {.name = "zero-bubble", .parent = "megatron-lm-2023", .distributed_optimizer = false},
      {.name = "megascale", .parent = "megatron-lm-2023", .balanced_stages = false},
      {.name = "megatron-core-2024", .parent = "megatron-lm-2023", .balanced_stages = false},
      {.name = "llama3-training", .parent = "megatron-core-2024"},
      // Saves every other product, and what attention and all-to-alls return (activation_checkpoint.py); its
      // loss holds logits and their gradient in 16 bits, and logarithm and gradient in 32 (loss.py).
      {.name = "torchtitan", .gradient_bytes = 4.0, .logit_bytes = 12.0, .selects_products = true},
      {.name = "nemo-automodel", .parent = "torchtitan"},
      {.name = "megatron-core-2025", .parent = "megatron-core-2024", .balanced_stages = false},
      {.name = "megatron-bridge-25.09",
       .parent = "megatron-core-2024",
       .narrow_only = true,
       .dispatcher = kDeduplicated},
      {.name = "megatron-bridge-25.11", .parent = "megatron-bridge-25.09", .dispatcher = kDeduplicated},
      {.name = "megatron-bridge-26.02", .parent = "megatron-bridge-25.11", .dispatcher = kDeduplicated},
      {.name = "megatron-bridge-26.04", .parent = "megatron-bridge-26.02", .dispatcher = kDeduplicated},
      {.name = "megatron-bridge-26.06",
       .parent = "megatron-bridge-26.04",
       .narrow_only = true,
       .dispatcher = kDeduplicated},
  };
  return kSoftware;
}

const Software* find_software(std::string_view name) {
  const std::size_t i = software_index(name);
  return i == known_software().size() ? nullptr : &known_software()[i];
}

std::vector<std::string> software_names() {
  std::vector<std::string> names;
  for (const Software& software : known_software()) {
    names.emplace_back(software.name);
  }
  return names;
}

const Software& default_software() {
  return *std::find_if(known_software().rbegin(), known_software().rend(),
                       [](const Software& software) { return !software.narrow_only; });
}

const std::vector<DeviceAncestry>& device_ancestry() {
  static const std::vector<DeviceAncestry> kDevices = {
      {"A100-80GB", ""},
      {"A100-80GB-RoCE", "A100-80GB"},
      {"A100-class(Ampere)", "A100-80GB"},
      {"A800-80GB", "A100-80GB"},
      {"H100-80GB", ""},
      {"H800-80GB", "H100-80GB"},
      {"H20-96GB", "H100-80GB"},
      {"H200-141GB", "H100-80GB"},
      {"B200", "H100-80GB"},
      {"B300", "B200"},
      {"GB200", "B200"},
      {"GB300", "GB200"},
  };
  return kDevices;
}

Calibration::Calibration()
    : offsets_((1 + device_ancestry().size() + known_software().size()) * kConstants, 0.0) {}

Efficiencies Calibration::of(std::string_view device_kind, std::string_view software) const {
  const std::size_t devices = device_ancestry().size();
  Efficiencies result;
  for (std::size_t c = 0; c < kConstants; ++c) {
    double offset = offsets_[c];
    std::string_view kind = device_kind;
    for (std::size_t d = device_index(kind); d < devices; d = device_index(kind)) {
      offset += offsets_[(1 + d) * kConstants + c];
      kind = device_ancestry()[d].parent;
    }
    std::string_view name = software;
    for (std::size_t s = software_index(name); s < known_software().size(); s = software_index(name)) {
      offset += offsets_[(1 + devices + s) * kConstants + c];
      name = known_software()[s].parent;
    }
    result.values[c] = moved(c, constant_priors()[c].value, offset);
  }
  return result;
}

double Calibration::spread(std::size_t i) const {
  const ConstantPrior& prior = constant_priors()[i % kConstants];
  const std::size_t group = i / kConstants;
  if (group == 0) {
    return prior.spread;
  }
  return group <= device_ancestry().size() ? prior.device_spread : prior.software_spread;
}

bool Calibration::affects(std::size_t i, std::string_view device_kind, std::string_view software) const {
  const std::size_t group = i / kConstants;
  const std::size_t devices = device_ancestry().size();
  if (group == 0) {
    return true;
  }
  if (group <= devices) {
    std::size_t d = device_index(device_kind);
    while (d < devices && d != group - 1) {
      d = device_index(device_ancestry()[d].parent);
    }
    return d == group - 1;
  }
  std::size_t s = software_index(software);
  while (s < known_software().size() && s != group - 1 - devices) {
    s = software_index(known_software()[s].parent);
  }
  return s == group - 1 - devices;
}

std::string Calibration::describe(std::size_t i) const {
  const std::string_view name = constant_priors()[i % kConstants].name;
  const std::size_t group = i / kConstants;
  const std::size_t devices = device_ancestry().size();
  if (group == 0) {
    return std::string(name);
  }
  return group <= devices ? fmt::format("{} on {}", name, device_ancestry()[group - 1].kind)
                          : fmt::format("{} of {}", name, known_software()[group - 1 - devices].name);
}

}  // namespace expedite::plan
