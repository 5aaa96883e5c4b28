#include "expedite/plan/runs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "expedite/base/error.h"
#include "expedite/plan/csv.h"
#include "expedite/plan/validate.h"
#include "tests/error_of.h"

namespace expedite::plan {
namespace {

constexpr const char* kRuns = EXPEDITE_FIXTURES "/../../data/measured_runs.csv";
constexpr const char* kHeader =
    "id,model,layers,hidden,ffn,moe_ffn,heads,kv_heads,experts,topk,shared_experts,first_dense_layers,vocab,"
    "seq,"
    "hardware,n_devices,tp,pp,vpp,ep,etp,dp,cp,micro_batch,global_batch,recompute,precision,metric,value,"
    "source\n";
constexpr const char* kRow =
    "a-b/"
    "tok,DeepSeek-V3-L4,4,7168,18432,2048,128,128,256,8,1,1,129280,4096,B200,8,1,2,1,4,1,4,1,1,32,none,BF16,"
    "iter_time_s,0.7716,\"[P] SimuMax, measured\"\n";

std::string refusal(std::string row, const std::string& from, const std::string& to) {
  row.replace(row.find(from), from.size(), to);
  return error_of([&] { (void)parse_runs(kHeader + row, "runs.csv"); });
}

TEST(Csv, ReadsQuotesAndLines) {
  const CsvTable table = parse_csv(
      "\xEF\xBB\xBF"
      "a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n\r\n,2",
      "t.csv");
  EXPECT_EQ(table.columns, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(table.rows.size(), 2);
  EXPECT_EQ(table.rows[0].cells[1], "x, \"y\"\nz");
  EXPECT_EQ(table.rows[1].cells, (std::vector<std::string>{"", "2"}));
  EXPECT_EQ(table.rows[1].line, 5);
}

TEST(Csv, SaysWhatIsWrong) {
  const auto refused = [](const char* text) { return error_of([&] { (void)parse_csv(text, "t.csv"); }); };
  EXPECT_EQ(refused("a,b\n1\n"), "t.csv:2: 1 cells where the header has 2");
  EXPECT_EQ(refused("a\n\"b"), "t.csv:2: a quote opens here and never closes");
  EXPECT_EQ(refused("a\n\"b\"c\n"), "t.csv:2: text follows a closing quote; quote the whole cell");
  EXPECT_EQ(refused("a,a\n"), "t.csv: the column a is there twice; keep one");
  EXPECT_NE(refused(""), "");
}

TEST(Runs, ReadARow) {
  const std::vector<plan::Run> runs = parse_runs(std::string(kHeader) + kRow, "runs.csv");
  ASSERT_EQ(runs.size(), 1);
  const plan::Run& run = runs[0];
  EXPECT_EQ(run.configuration, "a-b");
  EXPECT_EQ(run.model.attention, architecture::AttentionKind::latent);
  EXPECT_EQ(run.model.count(architecture::LayerKind::dense), 1);
  EXPECT_EQ(run.model.count(architecture::LayerKind::moe), 3);
  EXPECT_EQ(run.model.prediction_layers, 0);
  EXPECT_EQ(run.strategy.dp, 4);
  EXPECT_EQ(run.software->name, "megatron-core-2025");
  EXPECT_EQ(run.published, 0.7716);
}

TEST(Runs, SayWhichColumnIsWrong) {
  EXPECT_EQ(refusal(kRow, "iter_time_s,0.7716", "iter_time_s,-1"),
            "runs.csv:2: value = -1: expected a number above 0 and at most 1e+12");
  for (const char* absurd : {"nan", "inf", "1e300", "", "fast"}) {
    EXPECT_NE(refusal(kRow, "iter_time_s,0.7716", std::string("iter_time_s,") + absurd).find("value = "),
              std::string::npos);
  }
  EXPECT_NE(refusal(kRow, "iter_time_s", "iter_time").find("metric = iter_time: expected iter_time_s"),
            std::string::npos);
  EXPECT_NE(refusal(kRow, "B200,8", "B201,8").find("hardware = B201"), std::string::npos);
  EXPECT_NE(refusal(kRow, "B200,8,1,2", "B200,8,1,3").find("n_devices 8 must be a multiple"),
            std::string::npos);
  EXPECT_NE(refusal(kRow, "none,BF16", "some,BF16").find("recompute = some"), std::string::npos);
  EXPECT_NE(refusal(kRow, "none,BF16", "none,INT8").find("precision = INT8"), std::string::npos);
  EXPECT_NE(refusal(kRow, "L4,4,7168", "L4,four,7168").find("layers = four"), std::string::npos);
  EXPECT_NE(refusal(kRow, "256,8,1,1", "256,300,1,1").find("experts per token"), std::string::npos);
  // The columns from n_devices: 8,1,2,1,4,1,4,1,1,32 are tp=1, pp=2, vpp=1, ep=4, etp=1, dp=4, cp=1, mb=1.
  EXPECT_NE(refusal(kRow, "8,1,2,1,4,1,4,1,1,32", "8,1,2,1,4,1,3,1,1,32").find("dp = 3"), std::string::npos);
  EXPECT_NE(refusal(kRow, "8,1,2,1,4,1,4,1,1,32", "8,1,2,1,3,1,4,1,1,32").find("ep = 3"), std::string::npos);
  EXPECT_NE(refusal(kRow, "8,1,2,1,4,1,4,1,1,32", "8,1,2,1,8,1,4,1,1,32").find("ep * etp = 8"),
            std::string::npos);
  EXPECT_NE(refusal(kRow, "8,1,2,1,4,1,4,1,1,32", "8,1,2,9,4,1,4,1,1,32").find("vpp = 9"), std::string::npos);
  EXPECT_NE(refusal(kRow, "8,1,2,1,4,1,4,1,1,32", "8,1,2,1,4,1,4,1,3,32").find("global_batch = 32"),
            std::string::npos);
  EXPECT_NE(refusal(kRow, "8,1,2,1,4,1,4,1,1,32", "12,3,2,1,2,1,2,1,1,32").find("tp = 3"), std::string::npos);
}

TEST(Runs, NeedEveryColumn) {
  const std::string header = kHeader;
  for (std::size_t begin = 0; begin < header.size() - 1;) {
    const std::size_t end = header.find_first_of(",\n", begin);
    const std::string column = header.substr(begin, end - begin);
    std::string renamed = header;
    renamed.replace(begin, column.size(), "another");
    EXPECT_EQ(error_of([&] { (void)parse_runs(renamed + kRow, "runs.csv"); }),
              "runs.csv: the column " + column + " is missing");
    begin = end + 1;
  }
}

TEST(Runs, CountFlopAsTheirSourcesDo) {
  // SC'21's formula for the 1.7 B model: 96 B s l h^2 (1 + s / 6h + V / 16 l h).
  for (const plan::Run& run : read_runs(kRuns)) {
    const auto h = static_cast<double>(run.model.hidden_size);
    const auto l = static_cast<double>(run.model.layers);
    const auto s = static_cast<double>(run.workload.seq);
    const auto v = static_cast<double>(run.model.vocab_size);
    const auto b = static_cast<double>(run.workload.global_batch);
    if (run.metric == Metric::hw_tflops_per_device_incl_recompute) {
      const double formula = 96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
      EXPECT_NEAR(counted_flops(run), formula, 0.002 * formula) << run.id;
    } else if (run.id.starts_with("korth") && run.metric == Metric::mfu_pct) {
      const double formula = 72 * b * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
      EXPECT_NEAR(counted_flops(run), formula, 0.002 * formula) << run.id;
    } else if (run.metric == Metric::hfu_pct) {
      const double formula = 72 * b * s * l * h * h * (1 + s / (3 * h) + v / (12 * l * h));
      EXPECT_NEAR(counted_flops(run), formula, 0.002 * formula) << run.id;
    }
  }
}

TEST(Runs, OfOneConfigurationAreInOneHalf) {
  std::map<std::string, bool> half;
  int fitted = 0;
  int moved_over = 0;
  for (const plan::Run& run : read_runs(kRuns)) {
    const auto [entry, is_new] = half.emplace(run.configuration, in_fitted_half(run));
    EXPECT_EQ(entry->second, in_fitted_half(run));
    fitted += is_new && entry->second ? 1 : 0;
    moved_over += is_new && in_fitted_half(run, "1") != entry->second ? 1 : 0;
  }
  const auto configurations = static_cast<double>(half.size());
  EXPECT_NEAR(fitted, configurations / 2.0, configurations / 10.0);
  EXPECT_NEAR(moved_over, configurations / 2.0, configurations / 10.0);
}

TEST(Spearman, IsTheCorrelationOfRanks) {
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3, 4}, {10, 20, 30, 400}), 1.0);
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3, 4}, {4, 3, 2, 1}), -1.0);
  EXPECT_NEAR(spearman({1, 2, 3, 4, 5}, {2, 1, 4, 3, 5}), 0.8, 1e-12);
  EXPECT_NEAR(spearman({1, 1, 2}, {1, 2, 3}), 0.8660254, 1e-6);
}

TEST(Spearman, OfLikeValuesIsLowEvenWhenPredictionsAreGood) {
  EXPECT_DOUBLE_EQ(spearman_with_errors({1, 2, 4, 8, 16}, 0.03), 1.0);
  EXPECT_DOUBLE_EQ(spearman_with_errors({3, 1, 2}, 0.0), 1.0);
  // Of two values that lie apart by d, errors of standard deviation e swap Phi(-d / (e sqrt 2)).
  const double swapped = 0.5 * std::erfc(0.02 / (0.03 * 2.0));
  EXPECT_NEAR(spearman_with_errors({std::exp(0.0), std::exp(0.02)}, 0.03), 1.0 - 2.0 * swapped, 0.1);
}

// A share stays between 0 and 1 however far it is moved, and a step moves it as its scale says.
TEST(Calibration, KeepsSharesBetweenNothingAndAll) {
  for (std::size_t c = 0; c < kConstants; ++c) {
    const ConstantPrior& prior = constant_priors()[c];
    EXPECT_NEAR(moved(c, prior.value, 0.0), prior.value, 1e-12) << prior.name;
    EXPECT_NEAR(moved(c, moved(c, prior.value, 0.7), -0.7), prior.value, 1e-12) << prior.name;
    EXPECT_GT(moved(c, prior.value, 0.1), prior.value) << prior.name;
    if (prior.scale == Scale::log_odds) {
      EXPECT_LT(moved(c, prior.value, 20.0), 1.0) << prior.name;
      EXPECT_GT(moved(c, prior.value, -20.0), 0.0) << prior.name;
    }
  }
}

// Runs made from known constants are predicted well by what is fitted to some of them.
TEST(Fit, FindsConstantsThatExplainTheRuns) {
  Calibration truth;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    truth.offsets()[i] = 0.8 * truth.spread(i) * std::sin(static_cast<double>(i));
  }
  std::vector<std::unique_ptr<RunPrediction>> fitted;
  std::vector<plan::Run> others;
  for (plan::Run run : read_runs(kRuns)) {
    if (kind_of(run.metric) == MetricKind::flops || run.micro_batch_unknown || run.vpp_unknown) {
      continue;
    }
    RunPrediction prediction(run);
    run.published = prediction.predict(truth.of(prediction.device(), run.software->name));
    if (in_fitted_half(run)) {
      fitted.push_back(std::make_unique<RunPrediction>(run));
    } else {
      others.push_back(run);
    }
  }
  const Calibration found = fit_calibration(fitted);
  double sum = 0.0;
  double before = 0.0;
  for (const plan::Run& run : others) {
    RunPrediction prediction(run);
    const auto error = [&](const Calibration& calibration) {
      const double predicted = prediction.predict(calibration.of(prediction.device(), run.software->name));
      return std::abs(std::log(predicted / run.published));
    };
    sum += error(found);
    before += error(Calibration());
  }
  EXPECT_LT(sum, 0.03 * static_cast<double>(others.size()));
  EXPECT_LT(sum, 0.3 * before);
}

// What docs/planner.md promises of the half that nothing was fitted to, and that the constants in the program
// are those that the fit gives.
TEST(Validation, MeetsItsTargetsOnTheHeldOutHalf) {
  const Validation validation = validate(read_runs(kRuns));
  const ErrorSummary time = validation.errors(MetricKind::time, false).back();
  EXPECT_GT(time.runs, 120);
  EXPECT_LE(time.median, 0.08);
  EXPECT_LE(time.mean, 0.12);
  EXPECT_LE(validation.errors(MetricKind::memory, false).back().mean, 0.10);
  for (const Software& software : known_software()) {
    for (const DeviceAncestry& device : device_ancestry()) {
      const Efficiencies fitted = validation.calibration.of(device.kind, software.name);
      const Efficiencies carried = builtin_calibration().of(device.kind, software.name);
      for (std::size_t c = 0; c < kConstants; ++c) {
        ASSERT_NEAR(carried.values[c], fitted.values[c], 0.01 * fitted.values[c])
            << constant_priors()[c].name << " on " << device.kind << " of " << software.name
            << ": run expedite validate data/measured_runs.csv --constants "
               "expedite/plan/fitted_constants.inc";
      }
    }
  }
}

// Nothing was fitted to these; a model of 175 B parameters is among them.
TEST(Validation, PredictsRunsThatTheTableDoesNotHold) {
  const Validation others = validate(read_runs(EXPEDITE_FIXTURES "/../../data/vtrain_other_runs.csv"));
  const ErrorSummary time = others.errors(MetricKind::time, false).back();
  EXPECT_EQ(time.runs, 42);
  EXPECT_LE(time.median, 0.09);
  EXPECT_LE(time.mean, 0.10);
}

// A few runs are predicted with what the program carries, as the whole table's are.
TEST(Validation, FitsNothingToAFewRuns) {
  std::vector<plan::Run> runs = read_runs(kRuns);
  const Validation whole = validate(runs);
  runs.resize(20);
  const Validation few = validate(runs);
  EXPECT_EQ(few.fitted_rows, 0);
  ASSERT_EQ(few.runs.size(), 20);
  for (std::size_t i = 0; i < few.runs.size(); ++i) {
    EXPECT_FALSE(few.runs[i].fitted);
    EXPECT_NEAR(few.runs[i].predicted, whole.runs[i].predicted, 0.01 * whole.runs[i].predicted);
  }
  EXPECT_NE(describe(few).find("the program carries"), std::string::npos);
}

// Plans assume the newest program that was measured in the precision most plans are for.
TEST(Software, KnowsWhichWereMeasuredInNarrowProductsOnly) {
  std::map<std::string_view, bool> in_16_bits;
  for (const expedite::plan::Run& run : read_runs(kRuns)) {
    in_16_bits[run.software->name] |= factor_bytes(run.precision) >= 2.0;
  }
  for (const auto& [name, wide] : in_16_bits) {
    EXPECT_EQ(find_software(name)->narrow_only, !wide) << name;
  }
  EXPECT_EQ(default_software().name, "megatron-bridge-26.04");
}

}  // namespace
}  // namespace expedite::plan
