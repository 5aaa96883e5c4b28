#include "expedite/train/prediction_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "expedite/base/error.h"

namespace expedite::train {
namespace {

std::string error_of(double predicted, std::optional<double> measured) {
  return measured && *measured > 0.0 ? fmt::format("{:+.1f} %", 100.0 * (predicted / *measured - 1.0)) : "";
}

std::optional<double> measured_class(const std::optional<StepTimes>& run, const TaskClass& kind) {
  if (!run) {
    return std::nullopt;
  }
  const auto found = run->classes.find(kind);
  return found == run->classes.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::pair<TaskClass, double>> largest_first(const ClassSeconds& classes) {
  std::vector<std::pair<TaskClass, double>> sorted(classes.begin(), classes.end());
  std::ranges::stable_sort(sorted, std::greater<>(), &std::pair<TaskClass, double>::second);
  return sorted;
}

}  // namespace

std::string prediction_table(const StepTimes& predicted, std::int64_t tokens,
                             const std::optional<StepTimes>& run) {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value, const std::string& measured,
                        const std::string& error) {
    fmt::format_to(std::back_inserter(text), "{:<30} {:>12}", name, value);
    if (run) {
      fmt::format_to(std::back_inserter(text), " {:>12} {:>10}", measured, error);
    }
    text += '\n';
  };
  const double seconds = predicted.step_seconds;
  const auto count = static_cast<double>(tokens);
  line("", "predicted", "measured", "error");
  line("step, ms", fmt::format("{:.2f}", seconds * 1e3),
       run ? fmt::format("{:.2f}", run->step_seconds * 1e3) : "",
       error_of(seconds, run ? std::optional(run->step_seconds) : std::nullopt));
  line("tokens/s", fmt::format("{:.0f}", count / seconds),
       run ? fmt::format("{:.0f}", count / run->step_seconds) : "", "");
  line("exposed communication, %", fmt::format("{:.1f}", 100.0 * predicted.exposed),
       run ? fmt::format("{:.1f}", 100.0 * run->exposed) : "", "");
  text += '\n';
  line("tasks, ms per step and rank", "", "", "");
  for (const auto& [kind, seconds_of_class] : largest_first(predicted.classes)) {
    const std::optional<double> measured = measured_class(run, kind);
    line(fmt::format("{} {}", name_of(kind.first), name_of(kind.second)),
         fmt::format("{:.3f}", seconds_of_class * 1e3),
         measured ? fmt::format("{:.3f}", *measured * 1e3) : "", error_of(seconds_of_class, measured));
  }
  return text;
}

nlohmann::json prediction_json(const StepTimes& predicted, std::int64_t tokens,
                               const std::optional<StepTimes>& run) {
  const double seconds = predicted.step_seconds;
  nlohmann::json json = {{"step_s", seconds},
                         {"tokens_per_s", static_cast<double>(tokens) / seconds},
                         {"exposed_fraction", predicted.exposed},
                         {"classes", nlohmann::json::array()}};
  if (run) {
    json["measured"] = {
        {"step_s", run->step_seconds}, {"exposed_fraction", run->exposed}, {"steps", run->steps}};
  }
  for (const auto& [kind, seconds_of_class] : largest_first(predicted.classes)) {
    nlohmann::json entry = {
        {"op", name_of(kind.first)}, {"pass", name_of(kind.second)}, {"seconds", seconds_of_class}};
    if (const std::optional<double> measured = measured_class(run, kind)) {
      entry["measured_s"] = *measured;
    }
    json["classes"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace expedite::train
