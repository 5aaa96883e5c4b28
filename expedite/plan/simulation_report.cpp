#include "expedite/plan/simulation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "expedite/plan/named_parts.h"
#include "expedite/plan/plan_report.h"
#include "expedite/plan/report_text.h"

namespace expedite::plan {
namespace {

double difference(const SimulatedStep& step) {
  return step.seconds / step.estimate.seconds.total - 1.0;
}

std::string name_of(const RankKind& kind) {
  return fmt::format("{}{}", kind.stage, kind.busiest ? "" : ", average");
}

void describe_time(std::string& text, const SimulatedStep& step) {
  const SimulatedRank& rank = step.busiest();
  const NamedParts simulated = parts_of(rank.seconds);
  const NamedParts estimated = parts_of(step.estimate.seconds);
  line(text, "\n{:<26} {:>10} {:>21}", fmt::format("time of stage {}", name_of(rank.kind)), "simulated",
       "closed form");
  for (std::size_t i = 0; i < simulated.size(); ++i) {
    if (simulated[i].second > 0.0 || estimated[i].second > 0.0) {
      line(text, "  {:<24} {:>10.3f} s {:>5.1f} % {:>10.3f} s", simulated[i].first, simulated[i].second,
           100.0 * simulated[i].second / step.seconds, estimated[i].second);
    }
  }
  line(text, "  {:<24} {:>10.3f} s {:>7} {:>10.3f} s", "all-to-alls in all", rank.seconds.expert_wire, "",
       step.estimate.seconds.expert_wire);
}

/// The mean over all ranks.
void describe_exposed(std::string& text, const SimulatedStep& step) {
  std::string list;
  double ranks = 0.0;
  for (const SimulatedRank& rank : step.ranks) {
    ranks += rank.kind.multiplicity;
  }
  for (int op = 0; op < schedule::kOps; ++op) {
    double seconds = 0.0;
    for (const SimulatedRank& rank : step.ranks) {
      seconds += rank.kind.multiplicity * rank.exposed_by_op[static_cast<std::size_t>(op)] / ranks;
    }
    if (seconds >= 5e-4) {
      list += fmt::format("{}{} {:.3f} s", list.empty() ? "" : ", ", name_of(static_cast<schedule::Op>(op)),
                          seconds);
    }
  }
  line(text, "compute waits for, on average over ranks: {}", list.empty() ? "nothing" : list);
}

void describe_memory(std::string& text, const SimulatedStep& step, double memory_limit) {
  line(text, "\nmemory at the peak, GiB; in brackets the closed form's");
  line(text, "{:>12} {:>8} {:>9} {:>9} {:>16} {:>16} {:>14} {:>7} {:>9} {:>16}", "stage", "weights",
       "gradients", "optimizer", "activations", "of experts", "communication", "logits", "allocator",
       "total");
  const auto both = [](double simulated, double estimated) {
    return fmt::format("{:.2f} ({:.2f})", simulated / kGib, estimated / kGib);
  };
  for (const SimulatedRank& rank : step.ranks) {
    const Memory& a = rank.memory;
    const Memory& b = rank.estimated;
    line(text, "{:>12} {:>8.2f} {:>9.2f} {:>9.2f} {:>16} {:>16} {:>14} {:>7.2f} {:>9.2f} {:>16}",
         name_of(rank.kind), a.weights / kGib, a.gradients / kGib, a.optimizer / kGib,
         both(a.activations, b.activations), both(a.expert_activations, b.expert_activations),
         both(a.communication, b.communication), a.logits / kGib, a.allocator / kGib,
         both(a.total(), b.total()));
  }
  if (step.memory > memory_limit) {
    line(text, "stage {} needs {:.1f} GiB, more than the {:.1f} GiB there are", name_of(step.fullest().kind),
         step.memory / kGib, memory_limit / kGib);
  }
}

}  // namespace

std::string describe(const SimulatedStep& step, const Strategy& strategy, double memory_limit) {
  std::string text;
  line(text, "{}", to_string(strategy));
  line(text,
       "step {:.3f} s simulated, {:.3f} s in closed form ({:+.1f} %); {:.1f} tokens/s per device, MFU {:.1f} "
       "%",
       step.seconds, step.estimate.seconds.total, 100.0 * difference(step), step.tokens_per_s_per_device,
       100.0 * step.mfu);
  line(text, "of all ranks' time {:.1f} % is bubble and {:.1f} % waits for communication",
       100.0 * step.bubble_fraction, 100.0 * step.exposed_fraction);
  if (step.busiest().seconds.expert_wire > 0.0) {
    line(text, "EP communication hidden: {:.2f} % in steady state, {:.2f} % in the whole step",
         100.0 * std::max(0.0, step.hidden.steady_state), 100.0 * std::max(0.0, step.hidden.whole_step));
  }
  describe_exposed(text, step);
  describe_time(text, step);
  describe_memory(text, step, memory_limit);
  line(text, "\n{} devices, {} unlike ranks, {} tasks: built and simulated in {:.2f} s", strategy.devices(),
       step.ranks.size(), step.tasks, step.took_seconds);
  return text;
}

std::string to_json(const SimulatedStep& step, const Strategy& strategy) {
  const auto named = [](const NamedParts& parts, double unit) {
    nlohmann::json json;
    for (const auto& [name, value] : parts) {
      json[std::string(name)] = value / unit;
    }
    return json;
  };
  nlohmann::json ranks = nlohmann::json::array();
  for (const SimulatedRank& rank : step.ranks) {
    nlohmann::json exposed = nlohmann::json::object();
    for (int op = 0; op < schedule::kOps; ++op) {
      const double seconds = rank.exposed_by_op[static_cast<std::size_t>(op)];
      if (seconds > 0.0) {
        exposed[std::string(name_of(static_cast<schedule::Op>(op)))] = seconds;
      }
    }
    ranks.push_back({{"stage", rank.kind.stage},
                     {"rank", rank.rank},
                     {"busiest", rank.kind.busiest},
                     {"ranks_like_it", rank.kind.multiplicity},
                     {"seconds_by_cause", named(parts_of(rank.seconds), 1.0)},
                     {"expert_wire_s", rank.seconds.expert_wire},
                     {"exposed_s_by_operation", exposed},
                     {"memory_gib", rank.memory.total() / kGib},
                     {"memory_gib_by_category", named(parts_of(rank.memory), kGib)},
                     {"estimated_memory_gib_by_category", named(parts_of(rank.estimated), kGib)}});
  }
  const nlohmann::json json = {{"strategy", to_string(strategy)},
                               {"devices", strategy.devices()},
                               {"step_s", step.seconds},
                               {"estimated_step_s", step.estimate.seconds.total},
                               {"difference", difference(step)},
                               {"tokens_per_s_per_device", step.tokens_per_s_per_device},
                               {"mfu", step.mfu},
                               {"memory_gib", step.memory / kGib},
                               {"bubble_fraction", step.bubble_fraction},
                               {"exposed_fraction", step.exposed_fraction},
                               {"exposed_ep_fraction", 1.0 - step.hidden.whole_step},
                               {"ep_hidden_steady", step.hidden.steady_state},
                               {"ep_hidden", step.hidden.whole_step},
                               {"estimated_seconds_by_cause", named(parts_of(step.estimate.seconds), 1.0)},
                               {"estimated_memory_gib", step.estimate.memory.total() / kGib},
                               {"tasks", step.tasks},
                               {"took_s", step.took_seconds},
                               {"ranks", ranks}};
  return json.dump(1) + "\n";
}

}  // namespace expedite::plan
