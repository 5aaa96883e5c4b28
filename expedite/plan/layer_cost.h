// What one layer takes on one device for one micro-batch, forward and backward, by cause.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "expedite/architecture/model_config.h"
#include "expedite/cost/routing.h"
#include "expedite/plan/calibration.h"
#include "expedite/plan/expert_reach.h"
#include "expedite/plan/machine.h"
#include "expedite/plan/precision.h"
#include "expedite/plan/strategy.h"

namespace expedite::plan {

enum class Cause : std::uint8_t {
  matmul,
  attention,
  memory,   // norms, activations, permutes, quantising
  host,     // launching, waiting for counts
  tensor,   // exposed communication of tensor parallelism
  context,  // of context parallelism
  expert,   // of expert parallelism
};
inline constexpr std::size_t kCauses = 7;
inline constexpr std::array<std::string_view, kCauses> kCauseNames = {"matmul",
                                                                      "attention",
                                                                      "memory traffic",
                                                                      "host",
                                                                      "tensor-parallel comm",
                                                                      "context-parallel comm",
                                                                      "expert-parallel comm"};

/// Seconds.
struct Seconds {
  std::array<double, kCauses> by_cause{};

  double& operator[](Cause cause) { return by_cause[static_cast<std::size_t>(cause)]; }
  double operator[](Cause cause) const { return by_cause[static_cast<std::size_t>(cause)]; }
  [[nodiscard]] double total() const {
    double sum = 0.0;
    for (const double seconds : by_cause) {
      sum += seconds;
    }
    return sum;
  }
  void add(const Seconds& other, double times = 1.0) {
    for (std::size_t i = 0; i < kCauses; ++i) {
      by_cause[i] += times * other.by_cause[i];
    }
  }
};

/// What a layer is made of. A schedule has a task or several of each.
enum class Operation : std::uint8_t {
  attention,  // with its norm
  mlp,        // of a dense layer
  router,
  shared_experts,
  experts,
  rows,  // of experts, put into order and back
};
inline constexpr std::size_t kOperations = 6;

/// Of one micro-batch. Communication inside an operation that compute waits for is part of it.
struct OperationTimes {
  Seconds forward;
  Seconds input_grad;
  Seconds weight_grad;  // products that nothing waits for
};

/// All-to-alls of one way of dispatch or of combine, seconds. Their levels take turns.
struct ExchangeTimes {
  double between = 0.0;  // over all links of a flat dispatcher, between nodes of a hierarchical one
  double within = 0.0;   // inside nodes, of a hierarchical one

  /// Of several chunks the faster level counts for one: the levels are at work at the same time.
  [[nodiscard]] double total(double chunks) const {
    return std::max(between, within) + std::min(between, within) / chunks;
  }
};

/// A layer's operations on a rank, and what a layer on its own adds.
struct LayerOperations {
  std::array<OperationTimes, kOperations> times;
  ExchangeTimes exchange;
  double chunks = 1.0;
  // Of exchanges, without what recomputing repeats: as the fitted programs run a layer, and where shared
  // experts and weight gradients run under them.
  double exposed_forward = 0.0;
  double exposed_backward = 0.0;
  double covered_forward = 0.0;
  double covered_backward = 0.0;
  double uncovered_backward = 0.0;  // likewise, but weight gradients run at another time
  double recomputed = 0.0;          // share of forward that backward repeats
  // What the host adds beside the device, of a whole layer.
  double host_forward = 0.0;
  double host_backward = 0.0;

  OperationTimes& operator[](Operation operation) { return times[static_cast<std::size_t>(operation)]; }
  const OperationTimes& operator[](Operation operation) const {
    return times[static_cast<std::size_t>(operation)];
  }
};

struct LayerTimes {
  Seconds forward;
  Seconds backward;          // with what is recomputed
  double weights = 0.0;      // of backward, weight gradients: products that nothing waits for
  double expert_wire = 0.0;  // all-to-alls of forward and backward, hidden or not
  Seconds paired;  // beside another micro-batch, which hides all-to-alls: both passes, not in chunks
  // Without one, in the same schedules: what stays exposed of all-to-alls.
  double covered_forward = 0.0;
  double covered_backward = 0.0;
  double uncovered_backward = 0.0;  // where weight gradients run at another time, as in zero-bubble schedules

  [[nodiscard]] double total() const { return forward.total() + backward.total(); }
};

/// Everything that layers' times depend on besides the strategy. Build once, share between threads.
class CostContext {
 public:
  /// What a router does to the ranks: distinct ranks and nodes that a token reaches, and the busiest rank.
  struct Reach {
    double ranks = 1.0;    // of ep, the sender's own among them
    double nodes = 1.0;    // domains of the innermost level, the sender's own among them
    double busiest = 1.0;  // load of the busiest rank over the mean
  };

  /// `forced_balance`: every rank gets what the experts' load gives it; otherwise chance adds to the busiest.
  CostContext(const ModelConfig& model, const Machine& machine, const Workload& workload, Precision precision,
              const Efficiencies& efficiencies, const Software& software, const ExpertLoad& load = {},
              bool forced_balance = false);

  /// The same model, machine and workload with other constants.
  void set_efficiencies(const Efficiencies& efficiencies);

  [[nodiscard]] const ModelConfig& model() const { return model_; }
  [[nodiscard]] const Machine& machine() const { return machine_; }
  [[nodiscard]] const Workload& workload() const { return workload_; }
  [[nodiscard]] Precision precision() const { return precision_; }
  [[nodiscard]] double eff(Constant constant) const { return efficiencies_[constant]; }
  [[nodiscard]] const Software& software() const { return software_; }
  /// For ep of at least 1 that divides the experts. `tokens`: of one rank, in one dispatch.
  [[nodiscard]] Reach reach(std::int64_t ep, std::int64_t etp, double tokens) const;
  /// Experts are not chosen evenly.
  [[nodiscard]] bool uneven() const { return uneven_; }
  /// Rows of an expert-parallel rank's experts over the mean: of the busiest, or of the others on average.
  [[nodiscard]] double expert_load(const Strategy& strategy, bool busiest) const;
  /// Elements of windowed and other layers: tokens that a token attends to, on average over layers.
  [[nodiscard]] double attended(bool fused) const { return fused ? attended_causal_ : attended_full_; }

  // Rates reached, not nominal.
  [[nodiscard]] double memory_bandwidth() const { return memory_bandwidth_; }
  /// The machine with links as fast as they were found to be.
  [[nodiscard]] const Machine& reached() const { return reached_; }
  /// Seconds of `count` products [m, k] · [k, n] in the context's precision. Each dimension loses as
  /// x / (x + half_size); never faster than the operands can be read (the roofline of Williams, Waterman &
  /// Patterson, 2009).
  [[nodiscard]] double matmul(double m, double n, double k, double count = 1.0,
                              Constant half = Constant::half_size) const;
  /// The weight gradient of the same product: its sum goes to memory in 32 bits.
  [[nodiscard]] double weight_gradient(double m, double n, double k, double count = 1.0,
                                       Constant half = Constant::half_size) const;

 private:
  ModelConfig model_;
  Machine machine_;
  Machine reached_;
  Workload workload_;
  Precision precision_;
  Efficiencies efficiencies_;
  Software software_;
  bool forced_balance_;
  bool uneven_;
  double peak_ = 0.0;  // reached by the largest products
  double memory_bandwidth_ = 0.0;
  double attended_causal_ = 0.0;
  double attended_full_ = 0.0;
  std::vector<ExpertReach> reach_;  // for every divisor of the experts, at etp = 1
};

/// One layer. Sources: operation counts and tensor-parallel communication, Narayanan et al. (2021,
/// arXiv:2104.04473) and Korthikanti et al. (2022, arXiv:2205.05198); latent attention, DeepSeek-AI (2024,
/// arXiv:2405.04434); fused attention forward and backward (2.5 times forward), Dao (2023,
/// arXiv:2307.08691); bytes of dispatchers, cost/dispatch_cost.h; chunks, cost/chunk_overlap.h. Host and
/// device work side by side, so that their seconds add in squares.
[[nodiscard]] LayerOperations layer_operations(const CostContext& context, const Strategy& strategy,
                                               architecture::LayerKind kind, bool busiest = true);
/// The sum over a layer's operations, in closed form; `whole`: the same layer's not in chunks.
[[nodiscard]] LayerTimes layer_times(const LayerOperations& layer, const LayerOperations& whole);
[[nodiscard]] LayerTimes layer_times(const CostContext& context, const Strategy& strategy,
                                     architecture::LayerKind kind);

/// The head with its loss, for one micro-batch; and a multi-token prediction layer's projection before it.
[[nodiscard]] OperationTimes head_operation(const CostContext& context, const Strategy& strategy);
[[nodiscard]] OperationTimes prediction_operation(const CostContext& context, const Strategy& strategy);
[[nodiscard]] LayerTimes layer_times(const OperationTimes& operation);

}  // namespace expedite::plan
