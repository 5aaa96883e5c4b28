#include "expedite/train/comparison_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace expedite::train {
namespace {

/// The value that a fraction `part` of the values lies below, between two where it falls there. There is at
/// least one.
double quantile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  const double place = part * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

double median(const std::vector<double>& values) {
  return quantile(values, 0.5);
}

using Measure = std::function<double(const ComparedStep&)>;

/// Of the steps that count.
std::vector<double> measured(const Comparison& comparison, const Contender& contender,
                             const Measure& measure) {
  std::vector<double> values;
  for (std::size_t i = static_cast<std::size_t>(comparison.warm_up); i < contender.steps.size(); ++i) {
    values.push_back(measure(contender.steps[i]));
  }
  return values;
}

/// How many times as fast the overlapped one was, step by step.
std::vector<double> speedups(const Comparison& comparison) {
  const auto seconds = [](const ComparedStep& step) { return step.seconds; };
  const std::vector<double> baseline = measured(comparison, comparison.baseline, seconds);
  std::vector<double> ratios = measured(comparison, comparison.overlapped, seconds);
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    ratios[i] = baseline[i] / ratios[i];
  }
  return ratios;
}

std::string chunks_of(const schedule::EpPlan& plan) {
  if (plan.chunking.chunk_size > 0) {
    return fmt::format("of {} tokens, {}", plan.chunking.chunk_size, name_of(plan.pipeline));
  }
  return fmt::format("{}, {}", plan.chunking.chunks, name_of(plan.pipeline));
}

class Table {
 public:
  explicit Table(const Comparison& comparison) : comparison_(comparison) {}

  void row(std::string_view name, std::string_view baseline, std::string_view overlapped) {
    text_ += fmt::format("  {:<30}{:>20}{:>20}\n", name, baseline, overlapped);
  }
  /// Of the median of the steps.
  void medians(std::string_view name, const Measure& measure,
               const std::function<std::string(double)>& shown) {
    row(name, shown(median(measured(comparison_, comparison_.baseline, measure))),
        shown(median(measured(comparison_, comparison_.overlapped, measure))));
  }
  /// As medians(), times `factor`, with one digit behind the point.
  void scaled_medians(std::string_view name, double factor, const Measure& measure) {
    medians(name, measure, [factor](double value) { return fmt::format("{:.1f}", value * factor); });
  }
  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  const Comparison& comparison_;
  std::string text_;
};

std::string agreement(const Comparison& comparison) {
  const auto apart = [](double found, double allowed) {
    constexpr double kLeastShown = 1e-6;
    if (found == 0.0) {
      return std::string("the same");
    }
    const std::string shown = found < kLeastShown ? "less than 0.0001" : fmt::format("{:.4f}", 100.0 * found);
    return fmt::format("{} % apart (rounding: up to {:g} %)", shown, 100.0 * allowed);
  };
  const LossDifference found = loss_difference(comparison);
  const LossDifference allowed = loss_tolerance(comparison);
  return fmt::format("first step: loss {}, gradient norm {}\nall steps: loss {}{}\n",
                     apart(found.first_loss, allowed.first_loss),
                     apart(found.first_gradient, allowed.first_gradient), apart(found.curve, allowed.curve),
                     losses_agree(comparison) ? "" : ". BEYOND TOLERANCE: the two do not learn the same");
}

}  // namespace

LossDifference loss_difference(const Comparison& comparison) {
  const std::vector<ComparedStep>& baseline = comparison.baseline.steps;
  const std::vector<ComparedStep>& overlapped = comparison.overlapped.steps;
  if (baseline.empty()) {
    return {};
  }
  const auto apart = [](double ours, double theirs) {
    return ours == theirs && std::isfinite(ours) ? 0.0 : std::abs(ours - theirs) / std::abs(theirs);
  };
  LossDifference difference;
  for (std::size_t i = 0; i < baseline.size(); ++i) {
    difference.curve += apart(overlapped[i].loss, baseline[i].loss) / static_cast<double>(baseline.size());
  }
  difference.first_loss = apart(overlapped[0].loss, baseline[0].loss);
  difference.first_gradient = apart(overlapped[0].gradient_norm, baseline[0].gradient_norm);
  return difference;
}

LossDifference loss_tolerance(const Comparison& comparison) {
  const bool one_dispatcher = comparison.baseline.plan.dispatcher == comparison.overlapped.plan.dispatcher;
  constexpr double kCurve = 2e-2;
  return comparison.dtype == DType::f32
             ? LossDifference{.first_loss = one_dispatcher ? 0.0 : 1e-5,
                              .first_gradient = 1e-4,
                              .curve = kCurve}
             : LossDifference{
                   .first_loss = one_dispatcher ? 0.0 : 1e-3, .first_gradient = 1e-2, .curve = kCurve};
}

bool losses_agree(const Comparison& comparison) {
  const LossDifference found = loss_difference(comparison);
  const LossDifference allowed = loss_tolerance(comparison);
  return found.first_loss <= allowed.first_loss && found.first_gradient <= allowed.first_gradient &&
         found.curve <= allowed.curve;
}

std::string comparison_table(const Comparison& comparison) {
  const std::vector<double> ratios = speedups(comparison);
  if (ratios.empty()) {
    return "baseline against overlapped: stopped before a step that counts\n";
  }
  const Contender& baseline = comparison.baseline;
  const Contender& overlapped = comparison.overlapped;
  Table table(comparison);
  table.row("", "baseline", "overlapped");
  table.row("dispatcher", name_of(baseline.plan.dispatcher), name_of(overlapped.plan.dispatcher));
  table.row("chunks, pipeline", chunks_of(baseline.plan), chunks_of(overlapped.plan));
  const Measure seconds = [](const ComparedStep& step) { return step.seconds; };
  table.medians("tokens/s", seconds, [&comparison](double each) {
    return fmt::format("{:.0f}", static_cast<double>(comparison.tokens) / each);
  });
  table.scaled_medians("step, ms", 1e3, seconds);
  table.scaled_medians("exposed communication, %", 1e2,
                       [](const ComparedStep& step) { return step.exposed_communication; });
  table.scaled_medians("rows between nodes, MB/step", 1e-6,
                       [](const ComparedStep& step) { return static_cast<double>(step.rows.inter_node); });
  table.scaled_medians("rows inside nodes, MB/step", 1e-6,
                       [](const ComparedStep& step) { return static_cast<double>(step.rows.intra_node); });
  table.row("training loss, last step", fmt::format("{:.4f}", baseline.steps.back().loss),
            fmt::format("{:.4f}", overlapped.steps.back().loss));
  if (baseline.validation_bits_per_byte && overlapped.validation_bits_per_byte) {
    table.row("validation, bits/byte", fmt::format("{:.4f}", *baseline.validation_bits_per_byte),
              fmt::format("{:.4f}", *overlapped.validation_bits_per_byte));
  }
  return fmt::format(
      "baseline against overlapped: {} steps each of a new model, by turns, same seed and text; medians of "
      "the last {}\n{}overlapped is {:.2f} times as fast (middle half of the steps: {:.2f} to {:.2f})\n{}",
      baseline.steps.size(), ratios.size(), std::move(table).text(), median(ratios), quantile(ratios, 0.25),
      quantile(ratios, 0.75), agreement(comparison));
}

}  // namespace expedite::train
