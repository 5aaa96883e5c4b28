#include "expedite/plan/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "expedite/base/text.h"
#include "expedite/plan/named_parts.h"
#include "expedite/plan/report_text.h"

namespace expedite::plan {
namespace {

struct WhatIf {
  Strategy strategy;
  std::string change;
  double gain = 0.0;  // of the rate
  double memory = 0.0;
};

class WhatIfs {
 public:
  WhatIfs(const StepCoster& coster, const Strategy& strategy, const SearchSpace& space, double seconds)
      : coster_(coster), strategy_(strategy), space_(space), seconds_(seconds) {}

  template <typename T>
  void vary(std::string_view knob, T Strategy::*field, const std::vector<T>& values) {
    for (const T value : values) {
      Strategy changed = strategy_;
      changed.*field = value;
      const std::int64_t devices = strategy_.devices();
      const std::int64_t others = std::int64_t{changed.tp} * changed.cp * changed.pp;
      if (value == strategy_.*field || devices % others != 0) {
        continue;
      }
      changed.dp = static_cast<std::int32_t>(devices / others);
      const CostContext& context = coster_.context();
      if (illegal(changed, context.model(), context.workload(), devices) ||
          (space_.accepted && !space_.accepted(changed))) {
        continue;
      }
      const StepCost cost = coster_.cost(changed);
      list_.push_back({changed, std::string(knob), seconds_ / cost.seconds.total - 1.0, cost.memory.total()});
    }
  }

  [[nodiscard]] std::vector<WhatIf> sorted() {
    std::ranges::stable_sort(list_, std::greater<>{}, &WhatIf::gain);
    return list_;
  }

 private:
  const StepCoster& coster_;
  const Strategy& strategy_;
  const SearchSpace& space_;
  double seconds_;
  std::vector<WhatIf> list_;
};

/// The knob of `text` ("tp=8,pp=16") that is named `knob`.
std::string knob_of(const std::string& text, const std::string& knob) {
  const std::string key = knob + "=";
  std::size_t at = text.starts_with(key) ? 0 : text.find("," + key);
  at += text.starts_with(key) ? 0 : 1;
  return text.substr(at, text.find(',', at) - at);
}

/// The strategy, and with which other dispatchers it is the same.
std::string with_alternatives(const Candidate& candidate) {
  std::string text = to_string(candidate.strategy);
  if (!candidate.alternatives.empty()) {
    std::vector<std::string> names;
    for (const schedule::Dispatcher dispatcher : candidate.alternatives) {
      names.emplace_back(name_of(dispatcher));
    }
    text += fmt::format(" (the same: dispatcher={})", join_choices(names));
  }
  return text;
}

/// By simulation where there is one.
struct Results {
  double tokens_per_s_per_device = 0.0;
  double mfu = 0.0;
  double bubble = 0.0;
  double exposed_expert = 0.0;
};

Results results_of(const Finalist& finalist) {
  if (finalist.simulated) {
    const SimulatedStep& step = *finalist.simulated;
    return {step.tokens_per_s_per_device, step.mfu, std::max(0.0, step.bubble_fraction),
            1.0 - step.hidden.whole_step};
  }
  const StepCost& cost = finalist.candidate.cost;
  return {cost.tokens_per_s_per_device, cost.mfu, bubble_fraction(cost.seconds),
          exposed_expert_fraction(cost.seconds)};
}

}  // namespace

std::string bound_of(const StepSeconds& seconds) {
  const auto parts = parts_of(seconds);
  const auto largest = std::ranges::max_element(parts, {}, [](const auto& part) { return part.second; });
  return fmt::format("{} {:.0f} %", largest->first, 100.0 * largest->second / seconds.total);
}

double exposed_expert_fraction(const StepSeconds& seconds) {
  return seconds.expert_wire > 0.0 ? std::min(1.0, seconds.work[Cause::expert] / seconds.expert_wire) : 0.0;
}

double bubble_fraction(const StepSeconds& seconds) {
  return seconds.bubble / seconds.total;
}

std::string describe(const SearchResult& result, const std::vector<Finalist>& finalists,
                     double memory_limit) {
  std::string text;
  const double rate = static_cast<double>(result.costed) / std::max(result.seconds, 1e-9);
  line(text, "{} strategies costed in time and memory, {} pruned, in {:.2f} s ({:.0f} costed per second)",
       result.costed, result.pruned, result.seconds, rate);
  line(text, "{} of those costed need more than {:.1f} GiB", result.too_large, memory_limit / kGib);
  std::string reasons;
  for (std::size_t i = 0; i < kIllegalNames.size(); ++i) {
    if (result.illegal[i] > 0) {
      reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", kIllegalNames[i], result.illegal[i]);
    }
  }
  line(text, "rejected as impossible: {}", reasons.empty() ? "none" : reasons);
  if (result.costed == 0) {
    line(text, "no strategy is possible");
    return text;
  }
  if (finalists.empty()) {
    line(text, "nothing fits: the smallest needs {:.1f} GiB per device", result.smallest_memory / kGib);
    return text;
  }
  line(text, "\n{:>3} {:>11} {:>10} {:>9} {:>6} {:>8} {:>7} {:>8}  {:<26} {}", "", "tokens/s", "step", "step",
       "MFU", "memory", "bubble", "exposed", "most of the step", "strategy");
  line(text, "{:>3} {:>11} {:>10} {:>9} {:>6} {:>8} {:>7} {:>8}  {:<26}", "", "per device", "simulated",
       "estimate", "%", "GiB", "", "EP", "by estimate");
  int rank = 0;
  for (const Finalist& finalist : finalists) {
    const StepCost& cost = finalist.candidate.cost;
    const Results results = results_of(finalist);
    const std::string simulated =
        finalist.simulated ? fmt::format("{:.3f}", finalist.simulated->seconds) : std::string("-");
    line(text, "{:>3} {:>11.1f} {:>10} {:>9.3f} {:>6.1f} {:>8.1f} {:>6.1f}% {:>7.1f}%  {:<26} {}", ++rank,
         results.tokens_per_s_per_device, simulated, cost.seconds.total, 100.0 * results.mfu,
         cost.memory.total() / kGib, 100.0 * results.bubble, 100.0 * results.exposed_expert,
         bound_of(cost.seconds), with_alternatives(finalist.candidate));
  }
  for (const Finalist& finalist : finalists) {
    if (!finalist.not_simulated.empty()) {
      line(text, "not simulated: {}: {}", to_string(finalist.candidate.strategy), finalist.not_simulated);
    }
  }
  return text;
}

std::string to_json(const SearchResult& result, const std::vector<Finalist>& finalists) {
  nlohmann::json strategies = nlohmann::json::array();
  for (const Finalist& finalist : finalists) {
    const Strategy& s = finalist.candidate.strategy;
    const StepCost& cost = finalist.candidate.cost;
    const Results results = results_of(finalist);
    nlohmann::json seconds;
    for (const auto& [name, value] : parts_of(cost.seconds)) {
      seconds[std::string(name)] = value;
    }
    nlohmann::json memory;
    for (const auto& [name, value] : parts_of(cost.memory)) {
      memory[std::string(name)] = value / kGib;
    }
    nlohmann::json alternatives = nlohmann::json::array();
    for (const schedule::Dispatcher dispatcher : finalist.candidate.alternatives) {
      alternatives.push_back(name_of(dispatcher));
    }
    strategies.push_back({{"tp", s.tp},
                          {"sp", s.sequence_parallel && s.tp > 1},
                          {"cp", s.cp},
                          {"pp", s.pp},
                          {"vpp", s.vpp},
                          {"ep", s.ep},
                          {"etp", s.etp},
                          {"dp", s.dp},
                          {"zero", s.zero},
                          {"micro_batch", s.micro_batch},
                          {"chunks", s.chunks},
                          {"recompute", kRecomputeNames[static_cast<std::size_t>(s.recompute)]},
                          {"pipeline", kPipelineNames[static_cast<std::size_t>(s.pipeline)]},
                          {"dispatcher", name_of(s.dispatcher)},
                          {"alternative_dispatchers", alternatives},
                          {"strategy", to_string(s)},
                          {"simulated", finalist.simulated.has_value()},
                          {"step_s", finalist.step_seconds()},
                          {"estimated_step_s", cost.seconds.total},
                          {"tokens_per_s_per_device", results.tokens_per_s_per_device},
                          {"mfu", results.mfu},
                          {"memory_gib", cost.memory.total() / kGib},
                          {"exposed_ep_fraction", results.exposed_expert},
                          {"bubble_fraction", results.bubble},
                          {"seconds_by_cause", seconds},
                          {"memory_gib_by_category", memory}});
  }
  nlohmann::json rejected = {{"memory", result.too_large}};
  for (std::size_t i = 0; i < kIllegalNames.size(); ++i) {
    rejected[std::string(kIllegalNames[i])] = result.illegal[i];
  }
  const nlohmann::json json = {{"costed", result.costed},
                               {"pruned", result.pruned},
                               {"seconds", result.seconds},
                               {"rejected", rejected},
                               {"strategies", strategies}};
  return json.dump(1) + "\n";
}

std::string explain_strategy(const CostContext& context, const Strategy& strategy, const SearchSpace& space,
                             double memory_limit) {
  const StepCoster coster(context);
  const StepCost cost = coster.cost(strategy);
  std::string text;
  line(text, "{}", to_string(strategy));
  line(text, "step {:.3f} s, {:.1f} tokens/s per device, MFU {:.1f} %, memory {:.1f} GiB{}",
       cost.seconds.total, cost.tokens_per_s_per_device, 100.0 * cost.mfu, cost.memory.total() / kGib,
       cost.memory.total() > memory_limit
           ? fmt::format(" (more than the {:.1f} GiB there are)", memory_limit / kGib)
           : std::string());
  line(text, "\ntime of the slowest stage");
  for (const auto& [name, seconds] : parts_of(cost.seconds)) {
    if (seconds > 0.0) {
      line(text, "  {:<24} {:>9.3f} s {:>5.1f} %", name, seconds, 100.0 * seconds / cost.seconds.total);
    }
  }
  if (cost.seconds.expert_wire > 0.0) {
    line(text, "  all-to-alls take {:.3f} s in all; {:.1f} % of that is exposed", cost.seconds.expert_wire,
         100.0 * exposed_expert_fraction(cost.seconds));
  }
  line(text, "\nmemory of the fullest stage");
  for (const auto& [name, bytes] : parts_of(cost.memory)) {
    if (bytes > 0.0) {
      line(text, "  {:<24} {:>9.2f} GiB", name, bytes / kGib);
    }
  }
  WhatIfs what_ifs(coster, strategy, space, cost.seconds.total);
  what_ifs.vary("tp", &Strategy::tp, space.tp);
  what_ifs.vary("cp", &Strategy::cp, space.cp);
  what_ifs.vary("pp", &Strategy::pp, space.pp);
  what_ifs.vary("vpp", &Strategy::vpp, space.vpp);
  what_ifs.vary("ep", &Strategy::ep, space.ep);
  what_ifs.vary("etp", &Strategy::etp, space.etp);
  what_ifs.vary("zero", &Strategy::zero, space.zero);
  what_ifs.vary("mb", &Strategy::micro_batch, space.micro_batch);
  what_ifs.vary("chunks", &Strategy::chunks, space.chunks);
  what_ifs.vary("recompute", &Strategy::recompute, space.recompute);
  what_ifs.vary("pipeline", &Strategy::pipeline, space.pipeline);
  what_ifs.vary("dispatcher", &Strategy::dispatcher, space.dispatcher);
  line(text, "\nwhat if one knob were another");
  constexpr std::size_t kMost = 12;
  std::size_t shown = 0;
  for (const WhatIf& other : what_ifs.sorted()) {
    if (shown++ == kMost) {
      break;
    }
    line(text, "  {:<30} {:>+6.1f} % tokens/s, {:>6.1f} GiB{}",
         knob_of(to_string(other.strategy), other.change), 100.0 * other.gain, other.memory / kGib,
         other.memory > memory_limit ? ", does not fit" : "");
  }
  return text;
}

}  // namespace expedite::plan
