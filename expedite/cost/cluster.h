// A cluster as measured or by its data sheet: how fast its devices compute and copy, and how fast its links
// carry. `expedite probe` writes what it measured as YAML; predictions read it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/cost/kernel_times.h"
#include "expedite/schedule/schedule.h"
#include "expedite/tensor/dtype.h"

namespace expedite::cost {

/// The speed of one product [M, K] · [K, N]. A multiplication and an addition are two FLOP.
struct MatmulRate {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  double flops_per_s = 0.0;

  bool operator==(const MatmulRate&) const = default;
};

struct MatmulRates {
  DType dtype = DType::bf16;      // of both factors; sums are f32
  double peak_flops_per_s = 0.0;  // of the fastest large product
  std::vector<MatmulRate> shapes;

  bool operator==(const MatmulRates&) const = default;
};

struct Cache {
  std::int64_t level = 1;
  std::int64_t bytes = 0;
  std::int64_t cores = 1;         // that share it
  double read_bytes_per_s = 0.0;  // of one rank, with data that the cache holds
  double copy_bytes_per_s = 0.0;  // bytes read and bytes written both count

  bool operator==(const Cache&) const = default;
};

inline constexpr std::array<std::string_view, 5> kPeakPrecisions = {"f32", "bf16", "fp16", "fp8", "fp4"};

/// The most that a data sheet promises of products without sparsity.
struct PeakRate {
  std::string precision;  // of kPeakPrecisions
  double flops_per_s = 0.0;

  bool operator==(const PeakRate&) const = default;
};

/// What one rank computes with: measured while all ranks of its node do the same, or by its data sheet, in
/// `peaks`.
struct Device {
  std::string kind = "cpu";
  std::int64_t cores = 1;         // of one rank
  std::int64_t memory_bytes = 0;  // of one rank; 0: not known
  double memory_read_bytes_per_s = 0.0;
  double memory_copy_bytes_per_s = 0.0;  // bytes read and bytes written both count
  std::vector<MatmulRates> matmul = {};
  std::vector<Cache> caches = {};         // smallest first
  std::vector<PeakRate> peaks = {};       // empty: only what was measured is known
  std::vector<KernelTimes> kernels = {};  // empty: not measured

  bool operator==(const Device&) const = default;
};

/// The bandwidth with messages of one size.
struct MessageBandwidth {
  std::int64_t message_bytes = 0;
  double bytes_per_s = 0.0;

  bool operator==(const MessageBandwidth&) const = default;
};

inline constexpr std::string_view kIntraNode = "intra_node";
inline constexpr std::string_view kInterNode = "inter_node";

/// The links of one level. Bandwidths and rates are those of one rank in one direction, while it sends and
/// receives at once. What ranks lose to each other on shared links is the ratio of the two bandwidths.
struct Link {
  std::string name = std::string(kIntraNode);
  std::int64_t ranks = 0;  // that the level joins; 0: those of a node, or of the cluster, as the name says
  double latency_s = 0.0;  // of a small message, one way
  double message_rate_per_s = 0.0;                       // of small messages, many under way
  double bandwidth_bytes_per_s = 0.0;                    // large messages, all ranks of all nodes at once
  double pair_bandwidth_bytes_per_s = 0.0;               // large messages, two ranks alone
  std::vector<MessageBandwidth> bandwidth_by_size = {};  // all ranks at once

  bool operator==(const Link&) const = default;
};

/// How long a collective of the executor's takes, and what it takes from compute.
struct CollectiveTime {
  std::int64_t bytes =
      0;                 // all_to_all: that a rank sends to others; all_gather: its block; all_reduce: in all
  double seconds = 0.0;  // while no rank computes
  double busy_seconds = 0.0;        // while all ranks compute
  double compute_share = 1.0;       // of a rank's cores that its compute keeps meanwhile
  double busy_start_seconds = 0.0;  // until a rank that computes begins it, from when it could
  double repeated_seconds = 0.0;    // as `seconds`, right behind another like it; 0: not measured

  bool operator==(const CollectiveTime&) const = default;
};

/// Of groups that hold so many ranks of each of so many nodes, all groups at once.
struct CollectiveTimes {
  schedule::Collective collective = schedule::Collective::all_to_all;
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;
  std::vector<CollectiveTime> times;  // by rising bytes

  bool operator==(const CollectiveTimes&) const = default;
};

/// How many ranks take turns on a core when all compute. Nodes of a lab share a machine's cores.
struct CoreSharing {
  double node = 1.0;     // ranks of a node among themselves
  double cluster = 1.0;  // nodes among themselves

  bool operator==(const CoreSharing&) const = default;
};

struct Cluster {
  std::string name = "cluster";
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;
  std::vector<Device> devices;  // one per kind; ranks compute on the first
  // intra_node with several ranks per node, inter_node with several nodes, and any levels besides.
  std::vector<Link> links;
  CoreSharing sharing = {};
  double task_seconds = 0.0;                      // that the executor adds to a task of the compute stream
  std::vector<CollectiveTimes> collectives = {};  // empty: not measured

  [[nodiscard]] std::int64_t ranks() const { return nodes * ranks_per_node; }
  /// The level of that name, or null.
  [[nodiscard]] const Link* find_link(std::string_view link) const;

  bool operator==(const Cluster&) const = default;
};

/// Reads what to_yaml writes. Throws Error naming `where` with the line, the key, and what is legal.
[[nodiscard]] Cluster parse_cluster(std::string_view yaml, const std::string& where);
[[nodiscard]] Cluster read_cluster(const std::string& path);

/// With the unit of every number in its key or beside it; reads as an equal cluster.
[[nodiscard]] std::string to_yaml(const Cluster& cluster);

}  // namespace expedite::cost
