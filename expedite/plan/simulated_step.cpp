#include "expedite/plan/simulated_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "expedite/base/error.h"
#include "expedite/cost/communication_share.h"
#include "expedite/plan/task_costs.h"

namespace expedite::plan {
namespace {

using cost::CommunicationKind;
using schedule::Op;
using schedule::Stream;
using schedule::Task;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// What a rank's compute worked on, and what it waited for.
StepSeconds parts_of(const schedule::Schedule& schedule, const TaskCosts& costs, const RankKind& kind,
                     const cost::RankTimes& times, double step) {
  StepSeconds parts{.total = step, .bubble = times.bubble};
  for (const Task& task : schedule.tasks) {
    if (task.stream != Stream::compute) {
      continue;
    }
    const Seconds work = costs.work_of(task, kind.busiest);
    if (task.op == Op::optimizer) {
      parts.optimizer += work.total();
    } else if (task.op == Op::gradient_norm) {
      parts.overhead += work.total();
    } else {
      parts.work.add(work);
    }
  }
  for (int op = 0; op < schedule::kOps; ++op) {
    const double exposed = times.exposed_by_op[static_cast<std::size_t>(op)];
    switch (cost::kind_of(static_cast<Op>(op))) {
      case CommunicationKind::expert_parallel:
        parts.work[Cause::expert] += exposed;
        break;
      case CommunicationKind::pipeline:
        parts.sends += exposed;
        break;
      case CommunicationKind::gradients:
        parts.gradients += exposed;
        break;
      case CommunicationKind::other:
        parts.overhead += exposed;
        break;
    }
  }
  parts.expert_wire = cost::communication_share(times, CommunicationKind::expert_parallel).under_way;
  return parts;
}

/// A task takes about 500 bytes.
void check_size(const CostContext& context, const Strategy& s) {
  constexpr double kMostTasks = 8e6;
  const ModelConfig& model = context.model();
  const double micro_batches = static_cast<double>(context.workload().global_batch) / s.dp / s.micro_batch;
  const double chunks = pairs_micro_batches(s) ? 1.0 : s.chunks;
  const double kinds = context.uneven() && s.ep > 1 ? 2.0 : 1.0;
  const double per_layer = 20.0 + (s.ep > 1 ? 14.0 * chunks : 0.0);
  const double tasks =
      micro_batches * static_cast<double>(model.layers + model.prediction_layers) * per_layer * kinds;
  require(tasks <= kMostTasks,
          "global batch {} with dp={} and mb={} are {:.0f} micro-batches and about {:.0f} million tasks, "
          "more than "
          "the {:.0f} million that are simulated: a smaller batch has the same steady state",
          context.workload().global_batch, s.dp, s.micro_batch, micro_batches, tasks * 1e-6,
          kMostTasks * 1e-6);
}

class Simulated {
 public:
  Simulated(const CostContext& context, const Strategy& strategy)
      : context_(context),
        strategy_(strategy),
        schedules_(build_schedules(context, strategy, piece_times(context, strategy))),
        costs_(context, strategy, schedules_),
        memory_(context) {
    for (std::size_t i = 0; i < schedules_.schedules.size(); ++i) {
      classes_.push_back({&schedules_.schedules[i], schedules_.kinds[i].multiplicity});
    }
  }

  SimulatedStep run(bool with_traces) {
    const cost::TaskCosts task_costs = [this](const schedule::Schedule& schedule, const Task& task) {
      return costs_.of(task, kind_of(schedule).busiest);
    };
    const cost::Simulation simulation =
        cost::simulate(classes_, task_costs, {.events = true, .memory = with_traces});
    SimulatedStep step{
        .seconds = simulation.seconds,
        .hidden = {cost::communication_share(simulation, CommunicationKind::expert_parallel, true).hidden(),
                   cost::communication_share(simulation, CommunicationKind::expert_parallel, false).hidden()},
        .estimate = StepCoster(context_).cost(strategy_),
        .tasks = simulation.tasks};
    const double estimated = step.estimate.seconds.total;
    step.tokens_per_s_per_device = step.estimate.tokens_per_s_per_device * estimated / step.seconds;
    step.mfu = step.estimate.mfu * estimated / step.seconds;
    double all = 0.0;
    for (std::size_t i = 0; i < simulation.ranks.size(); ++i) {
      const cost::RankTimes& times = simulation.ranks[i];
      step.ranks.push_back(rank_of(i, times, step.seconds));
      all += times.multiplicity * step.seconds;
      step.bubble_fraction += times.multiplicity * times.bubble;
      step.exposed_fraction += times.multiplicity * times.exposed;
    }
    step.bubble_fraction /= all;
    step.exposed_fraction /= all;
    step.memory = step.fullest().memory.total();
    if (with_traces) {
      step.traces = traces(simulation, step);
    }
    return step;
  }

 private:
  /// Schedules stand in one array.
  [[nodiscard]] const RankKind& kind_of(const schedule::Schedule& schedule) const {
    return schedules_.kinds[static_cast<std::size_t>(&schedule - schedules_.schedules.data())];
  }

  [[nodiscard]] SimulatedRank rank_of(std::size_t i, const cost::RankTimes& times, double step) const {
    const RankKind& kind = schedules_.kinds[i];
    SimulatedRank rank{
        .kind = kind,
        .rank = times.rank,
        .seconds = parts_of(schedules_.schedules[i], costs_, kind, times, step),
        .memory = costs_.held(kind),
        .estimated = memory_.of_stage(strategy_, schedules_.layers_of_stages(context_.model()), kind.stage),
        .exposed_by_op = times.exposed_by_op};
    const auto peak = [&](MemoryCategory category) {
      return context_.eff(Constant::activations) *
             static_cast<double>(times.peak_bytes[static_cast<std::size_t>(category)]);
    };
    rank.memory.activations = peak(MemoryCategory::activations);
    rank.memory.expert_activations = peak(MemoryCategory::expert_activations);
    rank.memory.communication =
        static_cast<double>(times.peak_bytes[static_cast<std::size_t>(MemoryCategory::communication)]);
    const double margin = std::max(0.0, context_.eff(Constant::allocator) - 1.0);
    for (Memory* memory : {&rank.memory, &rank.estimated}) {
      memory->allocator = margin * memory->total();
    }
    return rank;
  }

  [[nodiscard]] static std::vector<tracing::RankTrace> traces(const cost::Simulation& simulation,
                                                              const SimulatedStep& step) {
    std::vector<tracing::RankTrace> traces = traces_of(simulation);
    for (std::size_t i = 0; i < traces.size(); ++i) {
      const Memory& memory = step.ranks[i].memory;
      const tracing::MemorySample held[] = {{0, MemoryCategory::weights, std::llround(memory.weights)},
                                            {0, MemoryCategory::gradients, std::llround(memory.gradients)},
                                            {0, MemoryCategory::optimizer, std::llround(memory.optimizer)}};
      traces[i].memory.insert(traces[i].memory.begin(), std::begin(held), std::end(held));
    }
    return traces;
  }

  const CostContext& context_;
  const Strategy strategy_;
  StepSchedules schedules_;
  TaskCosts costs_;
  MemoryModel memory_;
  std::vector<cost::RankClass> classes_;
};

}  // namespace

const SimulatedRank& SimulatedStep::busiest() const {
  return *std::ranges::max_element(ranks, {}, [](const SimulatedRank& rank) {
    return rank.seconds.work.total() - rank.seconds.work[Cause::expert];
  });
}

const SimulatedRank& SimulatedStep::fullest() const {
  return *std::ranges::max_element(ranks, {}, [](const SimulatedRank& rank) { return rank.memory.total(); });
}

SimulatedStep simulate_step(const CostContext& context, const Strategy& strategy, bool with_traces) {
  check_size(context, strategy);
  const auto begin = std::chrono::steady_clock::now();
  SimulatedStep step = Simulated(context, strategy).run(with_traces);
  step.took_seconds = seconds_since(begin);
  return step;
}

}  // namespace expedite::plan
