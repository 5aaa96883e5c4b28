// Published measurements of training runs: reading the table, and what each row says about model, strategy
// and software.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/architecture/model_config.h"
#include "expedite/plan/calibration.h"
#include "expedite/plan/precision.h"
#include "expedite/plan/strategy.h"

namespace expedite::plan {

enum class Metric : std::uint8_t {
  iter_time_s,
  tokens_per_s_per_device,
  samples_per_s_per_device,
  model_tflops_per_device,
  hw_tflops_per_device_incl_recompute,
  mfu_pct,
  hfu_pct,
  peak_alloc_gib,
  peak_mem_gb,
};

/// What a row's error counts towards.
enum class MetricKind : std::uint8_t { time, flops, memory };

/// How a source counts the FLOP behind its TFLOP/s: sources differ, so that figures of different sources do
/// not compare.
enum class FlopCount : std::uint8_t {
  causal,               // products and half of the scores
  full_attention,       // products and all scores
  with_full_recompute,  // and forward once more
  with_core_recompute,  // and all of the scores once more (arXiv:2205.05198)
};

struct Run {
  std::string id;
  std::string configuration;  // id before "/": rows of one run share it
  std::string group;          // id up to the second "-", runs of one source and model size
  Metric metric = Metric::iter_time_s;
  double published = 0.0;
  std::string hardware;
  const Software* software = nullptr;
  FlopCount flop_count = FlopCount::causal;
  Precision precision = Precision::bf16;
  ModelConfig model;
  Workload workload;
  Strategy strategy;
  // What the source does not tell; the fastest value is taken.
  bool micro_batch_unknown = false;
  bool vpp_unknown = false;
  bool forced_balance = false;
  double scale_out_gb_per_s = 0.0;  // of one device; 0: as published of the device
  bool comparable = true;           // false: the source is known to have counted something else
};

[[nodiscard]] MetricKind kind_of(Metric metric);
[[nodiscard]] std::string_view name_of(Metric metric);

/// The table of measured runs. Throws Error naming `where`, the line, the column and what is legal.
[[nodiscard]] std::vector<Run> parse_runs(std::string_view text, const std::string& where);
[[nodiscard]] std::vector<Run> read_runs(const std::string& path);

/// The half of the runs that constants are fitted to, by a hash (FNV-1a) of `salt` and the configuration: the
/// rows of one run are together. Another salt chooses another half.
[[nodiscard]] bool in_fitted_half(const Run& run, std::string_view salt = "");

/// FLOP of a step as the run's source counts them.
[[nodiscard]] double counted_flops(const Run& run);

}  // namespace expedite::plan
