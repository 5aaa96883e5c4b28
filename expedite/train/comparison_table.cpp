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

/// The larger of the two; NaN when one is.
double worse(double one, double other) {
  return std::isnan(one) || one >= other ? one : other;
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
  constexpr double kPercent = 100.0;
  const LossDifference found = loss_difference(comparison);
  const LossDifference allowed = loss_tolerance(comparison);
  const std::string first = found.first == 0.0
                                ? "of the first step the same bits"
                                : fmt::format("of the first step {:.4f} % apart", kPercent * found.first);
  return fmt::format("losses: {} ({}), of any step at most {:.2f} % ({:g} % may be rounding){}\n", first,
                     allowed.first == 0.0 ? "as one dispatcher must"
                                          : fmt::format("{:g} % may be rounding", kPercent * allowed.first),
                     kPercent * found.largest, kPercent * allowed.largest,
                     losses_agree(comparison) ? "" : ": BEYOND TOLERANCE, the two do not learn the same");
}

}  // namespace

LossDifference loss_difference(const Comparison& comparison) {
  const auto apart = [](double ours, double theirs) { return std::abs(ours - theirs) / std::abs(theirs); };
  LossDifference difference;
  const Contender& baseline = comparison.baseline;
  const Contender& overlapped = comparison.overlapped;
  for (std::size_t i = 0; i < baseline.steps.size(); ++i) {
    const double here = apart(overlapped.steps[i].loss, baseline.steps[i].loss);
    if (i == 0) {
      difference.first = here;
    }
    difference.largest = worse(difference.largest, here);
  }
  if (baseline.validation_bits_per_byte && overlapped.validation_bits_per_byte) {
    difference.largest = worse(
        difference.largest, apart(*overlapped.validation_bits_per_byte, *baseline.validation_bits_per_byte));
  }
  return difference;
}

LossDifference loss_tolerance(const Comparison& comparison) {
  const bool one_dispatcher = comparison.baseline.plan.dispatcher == comparison.overlapped.plan.dispatcher;
  const bool f32 = comparison.dtype == DType::f32;
  return {.first = one_dispatcher ? 0.0 : (f32 ? 1e-5 : 1e-3), .largest = f32 ? 1e-3 : 2e-2};
}

bool losses_agree(const Comparison& comparison) {
  const LossDifference found = loss_difference(comparison);
  const LossDifference allowed = loss_tolerance(comparison);
  return found.first <= allowed.first && found.largest <= allowed.largest;
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
