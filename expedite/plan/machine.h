// A cluster as the closed forms read it: numbers only, levels of links from the innermost out.
#pragma once

#include <array>
#include <cstdint>

#include "expedite/cost/cluster.h"
#include "expedite/plan/precision.h"

namespace expedite::plan {

inline constexpr int kMaxLevels = 4;

/// `size` ranks, `stride` apart in the numbering of all ranks, and so how many of them share a domain of each
/// level.
struct Span {
  double size = 1.0;
  std::array<double, kMaxLevels> inside = {1.0, 1.0, 1.0, 1.0};  // members within one domain of the level
};

struct Level {
  double ranks = 1.0;      // of one domain
  double bandwidth = 0.0;  // bytes/s of one rank, one way, all at once
  double latency = 0.0;    // seconds
};

struct Machine {
  std::int64_t ranks = 1;
  int level_count = 0;
  std::array<Level, kMaxLevels> levels;
  std::array<double, kPrecisionNames.size()> peak = {};  // FLOP/s by Precision; 0: cannot
  double memory_bytes = 0.0;
  double memory_bandwidth = 0.0;  // bytes/s

  [[nodiscard]] double peak_of(Precision precision) const {
    return peak[static_cast<std::size_t>(precision)];
  }
  [[nodiscard]] Span span(double size, double stride) const;
};

/// Of the cluster's device of that kind, or of its first if `kind` is empty. A domain that does not divide
/// the ranks counts as the largest smaller one that does: a job takes equally many ranks of every domain.
/// Throws Error when the kind is unknown, memory is not given, or a level is missing.
[[nodiscard]] Machine make_machine(const cost::Cluster& cluster, std::int64_t ranks,
                                   std::string_view kind = "");

/// All-gather or reduce-scatter of `bytes`, the whole that is gathered: (g - 1) / g of it passes every rank.
/// Rings over all links that a group's ranks have (NCCL): between domains the group's ranks of one domain
/// carry together, so that the slower of the inner links and of these sets the pace. Latency of a step of a
/// recursive doubling per doubling of ranks (Thakur, Rabenseifner & Gropp, 2005).
[[nodiscard]] double gather_seconds(const Machine& machine, const Span& span, double bytes);

/// Every rank sends `bytes` in equal parts to the ranks of the group, itself among them; both ways at once.
/// Levels carry at the same time.
[[nodiscard]] double all_to_all_seconds(const Machine& machine, const Span& span, double bytes);

/// One rank to one `stride` away.
[[nodiscard]] double send_seconds(const Machine& machine, double stride, double bytes);

}  // namespace expedite::plan
