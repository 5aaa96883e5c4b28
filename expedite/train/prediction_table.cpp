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

std::optional<double> measured_class(const std::optional<MeasuredRun>& run, const TaskClass& kind) {
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

ClassSeconds predicted_classes(const Prediction& prediction) {
  const std::vector<tracing::RankTrace> traces = cost::traces_of(prediction.simulation);
  return class_seconds(traces, prediction.schedules).front();
}

double predicted_exposed(const Prediction& prediction) {
  double waiting = 0.0;
  double all = 0.0;
  for (const cost::RankTimes& rank : prediction.simulation.ranks) {
    waiting += prediction.simulation.seconds - rank.compute;
    all += prediction.simulation.seconds;
  }
  return all > 0.0 ? waiting / all : 0.0;
}

std::string prediction_table(const Prediction& prediction, const std::optional<MeasuredRun>& run) {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& predicted, const std::string& measured,
                        const std::string& error) {
    fmt::format_to(std::back_inserter(text), "{:<30} {:>12}", name, predicted);
    if (run) {
      fmt::format_to(std::back_inserter(text), " {:>12} {:>10}", measured, error);
    }
    text += '\n';
  };
  const double seconds = prediction.simulation.seconds;
  const auto tokens = static_cast<double>(prediction.tokens);
  line("", "predicted", "measured", "error");
  line("step, ms", fmt::format("{:.2f}", seconds * 1e3),
       run ? fmt::format("{:.2f}", run->step_seconds * 1e3) : "",
       error_of(seconds, run ? std::optional(run->step_seconds) : std::nullopt));
  line("tokens/s", fmt::format("{:.0f}", tokens / seconds),
       run ? fmt::format("{:.0f}", tokens / run->step_seconds) : "", "");
  line("exposed communication, %", fmt::format("{:.1f}", 100.0 * predicted_exposed(prediction)),
       run ? fmt::format("{:.1f}", 100.0 * run->exposed) : "", "");
  text += '\n';
  line("tasks, ms per step and rank", "", "", "");
  for (const auto& [kind, predicted] : largest_first(predicted_classes(prediction))) {
    const std::optional<double> measured = measured_class(run, kind);
    line(fmt::format("{} {}", name_of(kind.first), name_of(kind.second)),
         fmt::format("{:.3f}", predicted * 1e3), measured ? fmt::format("{:.3f}", *measured * 1e3) : "",
         error_of(predicted, measured));
  }
  return text;
}

nlohmann::json prediction_json(const Prediction& prediction, const std::optional<MeasuredRun>& run) {
  const double seconds = prediction.simulation.seconds;
  nlohmann::json json = {{"step_s", seconds},
                         {"tokens_per_s", static_cast<double>(prediction.tokens) / seconds},
                         {"exposed_fraction", predicted_exposed(prediction)},
                         {"classes", nlohmann::json::array()}};
  if (run) {
    json["measured"] = {
        {"step_s", run->step_seconds}, {"exposed_fraction", run->exposed}, {"steps", run->steps}};
  }
  for (const auto& [kind, predicted] : largest_first(predicted_classes(prediction))) {
    nlohmann::json entry = {
        {"op", name_of(kind.first)}, {"pass", name_of(kind.second)}, {"seconds", predicted}};
    if (const std::optional<double> measured = measured_class(run, kind)) {
      entry["measured_s"] = *measured;
    }
    json["classes"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace expedite::train
