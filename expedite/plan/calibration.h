// What no data sheet says: how much of a device's and a network's nominal speed a training program reaches,
// by device and by the software that was measured.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/schedule/dispatcher.h"

namespace expedite::plan {

/// What is fitted to measured runs. None belongs to one model or one run.
enum class Constant : std::uint8_t {
  matmul,            // share of the peak of 16-bit products that the largest reach
  matmul_fp8,        // the same of 8-bit products
  matmul_fp4,        // the same of 4-bit products
  half_size,         // a product's dimension at which it loses half of its rate
  expert_half_size,  // rows of an expert at which its products lose half of their rate
  attention,         // share of the 16-bit peak of fused attention
  memory,            // share of the memory's bandwidth
  quantize,          // passes over the factors to make them narrow
  intra,             // share of the bandwidth of the links inside a domain
  inter,             // and between domains
  layer_overhead,    // seconds of the host per layer and pass
  layer_gap,         // seconds per layer and pass between kernels, that nothing hides
  moe_overhead,      // the same of an MoE layer, besides
  moe_rows,          // passes over the rows of experts besides their products
  step_overhead,     // seconds per step
  gradient_exposed,  // share of gradients' and weights' communication that nothing hides
  tp_exposed,        // share of tensor parallelism's
  ep_exposed,        // share of unchunked all-to-alls
  pipeline_exposed,  // share of sends between stages in steady state
  activations,       // bytes of activations over the count of what backward needs
  allocator,         // bytes in all over bytes in use
};
inline constexpr std::size_t kConstants = 21;

/// A share lies between 0 and 1 and is fitted as the logarithm of its odds; others are above 0 and fitted as
/// their logarithms.
enum class Scale : std::uint8_t { logarithm, log_odds };

/// A constant's value before anything was measured, and how far values are expected to lie from it. Standard
/// deviations are of its scale.
struct ConstantPrior {
  std::string_view name;
  Scale scale;
  double value;
  double spread;           // of the value that all share
  double device_spread;    // of a device from the one it descends from
  double software_spread;  // of a program from the one it descends from
};
[[nodiscard]] const std::array<ConstantPrior, kConstants>& constant_priors();
/// `value`, of constant `c`, moved by `offset` on the constant's scale.
[[nodiscard]] double moved(std::size_t c, double value, double offset);

struct Efficiencies {
  std::array<double, kConstants> values{};
  [[nodiscard]] double operator[](Constant constant) const {
    return values[static_cast<std::size_t>(constant)];
  }
};

/// A training program and what is known of it without measuring.
struct Software {
  std::string_view name;         // "megatron-bridge-26.06"
  std::string_view parent = {};  // whose constants its own are expected to be near; empty: the shared ones
  bool fused_attention = true;
  bool sequence_parallel = true;
  bool distributed_optimizer = true;  // gradients reduced to the rank that updates them (ZeRO 1)
  bool balanced_stages = true;        // layers placed by cost, not evenly by count
  bool blocking = false;              // compute waits for all-reduces of tensor parallelism and gradients
  double gradient_bytes = 4.0;        // of one gradient on the wire
  /// At the peak, of one logit: in 16 and in 32 bits. Programs that do not fuse the loss have its logarithm
  /// and two gradients.
  double logit_bytes = 6.0;
  /// recompute=half keeps every other product of each layer, instead of every other layer.
  bool selects_products = false;
  bool narrow_only = false;  // all of its runs in the table multiply in 8 or 4 bits
  schedule::Dispatcher dispatcher = schedule::Dispatcher::alltoall;
};
[[nodiscard]] const std::vector<Software>& known_software();
/// Null when there is none.
[[nodiscard]] const Software* find_software(std::string_view name);
[[nodiscard]] std::vector<std::string> software_names();
/// The program that plans assume unless another is asked for: the newest that was measured in 16 bits.
/// Constants of one that was not are known for the long steps of large devices in 8 and 4 bits only.
[[nodiscard]] const Software& default_software();

/// A device and the one whose constants its own are expected to be near.
struct DeviceAncestry {
  std::string_view kind;
  std::string_view parent;
};
[[nodiscard]] const std::vector<DeviceAncestry>& device_ancestry();

/// On the constants' scales: shared values, and what devices and programs differ by from their parents.
class Calibration {
 public:
  /// The priors: nothing measured.
  Calibration();

  [[nodiscard]] Efficiencies of(std::string_view device_kind, std::string_view software) const;

  [[nodiscard]] std::size_t size() const { return offsets_.size(); }
  [[nodiscard]] std::vector<double>& offsets() { return offsets_; }
  [[nodiscard]] const std::vector<double>& offsets() const { return offsets_; }
  /// Standard deviation of offset i; 0: it is not free.
  [[nodiscard]] double spread(std::size_t i) const;
  /// Offset i is part of a constant of that device and program.
  [[nodiscard]] bool affects(std::size_t i, std::string_view device_kind, std::string_view software) const;
  /// "matmul", "matmul on H100-80GB", "matmul of torchtitan".
  [[nodiscard]] std::string describe(std::size_t i) const;

 private:
  std::vector<double> offsets_;  // [1 + devices + software][kConstants]
};

/// Fitted to the measured runs that the program carries (docs/planner.md).
[[nodiscard]] const Calibration& builtin_calibration();

}  // namespace expedite::plan
