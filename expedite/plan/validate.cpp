#include "expedite/plan/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "expedite/base/random.h"

namespace expedite::plan {
namespace {

ErrorSummary summarize(std::string name, std::vector<double> errors) {
  std::ranges::sort(errors);
  const std::size_t n = errors.size();
  ErrorSummary summary{.name = std::move(name), .runs = static_cast<std::int64_t>(n)};
  if (n > 0) {
    summary.median = 0.5 * (errors[(n - 1) / 2] + errors[n / 2]);
    summary.mean = std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(n);
    summary.worst = errors.back();
  }
  return summary;
}

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<double> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    double below = 0.0;
    double equal = 0.0;
    for (const double other : values) {
      below += other < values[i] ? 1.0 : 0.0;
      equal += other == values[i] ? 1.0 : 0.0;
    }
    result[i] = below + 0.5 * (equal - 1.0);
  }
  return result;
}

void append(std::string& text, const char* title, const std::vector<ErrorSummary>& summaries) {
  text += fmt::format("\n{}\n  {:<26} {:>5} {:>8} {:>8} {:>8}\n", title, "source", "rows", "median", "mean",
                      "worst");
  for (const ErrorSummary& summary : summaries) {
    text += fmt::format("  {:<26} {:>5} {:>7.1f}% {:>7.1f}% {:>7.1f}%\n", summary.name, summary.runs,
                        100.0 * summary.median, 100.0 * summary.mean, 100.0 * summary.worst);
  }
}

}  // namespace

double PredictedRun::error() const {
  return std::abs(predicted / run.published - 1.0);
}

std::vector<ErrorSummary> Validation::errors(MetricKind kind, bool fitted) const {
  std::map<std::string, std::vector<double>> by_source;
  std::vector<double> all;
  for (const PredictedRun& run : runs) {
    if (kind_of(run.run.metric) == kind && run.fitted == fitted && run.run.comparable) {
      by_source[std::string(run.run.software->name)].push_back(run.error());
      all.push_back(run.error());
    }
  }
  std::vector<ErrorSummary> summaries;
  for (auto& [name, list] : by_source) {
    summaries.push_back(summarize(name, std::move(list)));
  }
  summaries.push_back(summarize("all", std::move(all)));
  return summaries;
}

std::vector<RankCorrelation> Validation::correlations(bool held_out_only) const {
  constexpr std::size_t kFewest = 5;
  std::map<std::string, std::array<std::vector<double>, 2>> groups;
  for (const PredictedRun& run : runs) {
    if (kind_of(run.run.metric) == MetricKind::time && !(held_out_only && run.fitted)) {
      groups[run.run.group][0].push_back(run.run.published);
      groups[run.run.group][1].push_back(run.predicted);
    }
  }
  std::vector<RankCorrelation> correlations;
  for (const auto& [name, values] : groups) {
    if (values[0].size() >= kFewest) {
      correlations.push_back({.group = name,
                              .runs = static_cast<std::int64_t>(values[0].size()),
                              .spearman = spearman(values[0], values[1]),
                              .reachable = spearman_with_errors(values[0], kGoodError)});
    }
  }
  return correlations;
}

Validation validate(const std::vector<Run>& runs, std::string_view salt) {
  std::set<std::string> timed;
  for (const Run& run : runs) {
    if (kind_of(run.metric) == MetricKind::time) {
      timed.insert(run.configuration);
    }
  }
  std::vector<std::unique_ptr<RunPrediction>> predictions;
  std::vector<std::unique_ptr<RunPrediction>> fitted;
  for (const Run& run : runs) {
    predictions.push_back(std::make_unique<RunPrediction>(run));
    const bool informs = kind_of(run.metric) != MetricKind::flops || !timed.contains(run.configuration);
    if (in_fitted_half(run, salt) && run.comparable && informs) {
      fitted.push_back(std::make_unique<RunPrediction>(run));
    }
  }
  const bool fits = std::ssize(fitted) >= kFewestToFit;
  Validation validation{.calibration = fits ? fit_calibration(fitted) : builtin_calibration(),
                        .fitted_rows = fits ? std::ssize(fitted) : 0,
                        .runs = {}};
  for (const auto& prediction : predictions) {
    const Run& run = prediction->run();
    validation.runs.push_back({.run = run,
                               .predicted = prediction->predict(
                                   validation.calibration.of(prediction->device(), run.software->name)),
                               .fitted = fits && in_fitted_half(run, salt)});
  }
  return validation;
}

double spearman(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks(a);
  const std::vector<double> y = ranks(b);
  const double mean = 0.5 * (static_cast<double>(x.size()) - 1.0);
  double xy = 0.0;
  double xx = 0.0;
  double yy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0.0 && yy > 0.0 ? xy / std::sqrt(xx * yy) : 0.0;
}

double spearman_with_errors(const std::vector<double>& values, double error) {
  constexpr std::uint64_t kDraws = 400;
  const Philox noise(0, stream_of("spearman_with_errors"));
  double sum = 0.0;
  std::vector<double> predicted(values.size());
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      predicted[i] = values[i] * std::exp(error * noise.normal(draw * values.size() + i));
    }
    sum += spearman(values, predicted);
  }
  return sum / static_cast<double>(kDraws);
}

std::string describe(const Validation& validation) {
  std::string text = fmt::format("{} rows; ", validation.runs.size());
  text += validation.fitted_rows > 0
              ? fmt::format("constants fitted to {} rows of the half of the runs whose hashed id is even\n",
                            validation.fitted_rows)
              : fmt::format(
                    "fewer than {} to fit to, so that all are predicted with the constants that the program "
                    "carries\n",
                    kFewestToFit);
  append(text, "held-out half, step time or rate", validation.errors(MetricKind::time, false));
  append(text, "held-out half, memory", validation.errors(MetricKind::memory, false));
  append(text, "held-out half, FLOP/s as each source counts them",
         validation.errors(MetricKind::flops, false));
  append(text, "fitted half, step time or rate", validation.errors(MetricKind::time, true));
  append(text, "fitted half, memory", validation.errors(MetricKind::memory, true));
  text += fmt::format(
      "\nrank correlation of step time or rate inside groups (Spearman); in brackets that of the published "
      "values "
      "with themselves,\neach off by {:.0f} % (one standard deviation)\n",
      100.0 * kGoodError);
  for (const bool held_out : {false, true}) {
    for (const RankCorrelation& group : validation.correlations(held_out)) {
      text += fmt::format("  {:<26} {:>3} runs {:<13} {:6.3f}  ({:.3f})\n", group.group, group.runs,
                          held_out ? "held out only" : "", group.spearman, group.reachable);
    }
  }
  text += "\nshared constants\n";
  for (std::size_t i = 0; i < kConstants; ++i) {
    const ConstantPrior& prior = constant_priors()[i];
    text += fmt::format("  {:<20} {:>10.4g}  (before fitting {:.4g})\n", prior.name,
                        moved(i, prior.value, validation.calibration.offsets()[i]), prior.value);
  }
  return text;
}

std::string to_json(const Validation& validation) {
  nlohmann::json list = nlohmann::json::array();
  for (const PredictedRun& run : validation.runs) {
    list.push_back({{"id", run.run.id},
                    {"metric", name_of(run.run.metric)},
                    {"published", run.run.published},
                    {"predicted", run.predicted},
                    {"half", run.fitted ? "fitted" : "held out"},
                    {"software", run.run.software->name},
                    {"comparable", run.run.comparable}});
  }
  return list.dump(1) + "\n";
}

std::string constants_source(const Calibration& calibration) {
  std::string text;
  for (std::size_t i = 0; i < calibration.size(); ++i) {
    if (std::abs(calibration.offsets()[i]) >= 5e-5) {
      text += fmt::format("{{\"{}\", {:.4f}}},\n", calibration.describe(i), calibration.offsets()[i]);
    }
  }
  return text;
}

}  // namespace expedite::plan
