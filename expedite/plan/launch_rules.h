// What training programs check of their command line, as far as a strategy decides it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "expedite/architecture/model_config.h"
#include "expedite/plan/precision.h"
#include "expedite/plan/strategy.h"

namespace expedite::plan {

/// megatron: Megatron-LM. mindspeed: MindSpeed-LLM with MindSpeed, which are built on Megatron core 0.12.1.
enum class Launcher : std::uint8_t { megatron, mindspeed };
inline constexpr std::array<std::string_view, 2> kLauncherNames = {"megatron", "mindspeed"};

struct Launch {
  const Strategy& strategy;
  const ModelConfig& model;
  const Workload& workload;
  Precision precision = Precision::bf16;
};

/// A release of Megatron core, 0.<minor>.
using Release = int;
inline constexpr Release kNever = 1 << 20;
inline constexpr Release kMindSpeedCore = 12;
inline constexpr Release kOldestMegatron = 14;  // the first with --use-megatron-fsdp and fsdp_dtensor
inline constexpr Release kNewestMegatron = 20;  // that was read: its main branch of 22 August 2026

/// One check. A launch that does not meet it is refused, but for releases of the core from `since` on, which
/// have dropped the check.
struct LaunchRule {
  std::string_view name;  // for tests and people: "heads of keys and values"
  bool of_megatron;
  bool of_mindspeed;
  Release since;
  bool (*met)(const Launch& launch);
  std::string (*refusal)(const Launch& launch);  // the knob, why, and what would be accepted
};
[[nodiscard]] std::span<const LaunchRule> launch_rules();

/// The oldest release of the program's core that accepts the launch; nothing when none does.
[[nodiscard]] std::optional<Release> oldest_release(Launcher launcher, const Launch& launch);
/// Why none does: of the first rule that is not met.
[[nodiscard]] std::string why_refused(Launcher launcher, const Launch& launch);

/// DualPipeV cuts the layers into 2 * pp equal chunks. Layers that do nothing fill the last up: their number,
/// or nothing where they would fill it wholly.
[[nodiscard]] std::optional<std::int64_t> idle_layers_of_dualpipev(const Launch& launch);

}  // namespace expedite::plan
