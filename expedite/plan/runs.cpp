#include "expedite/plan/runs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "expedite/base/error.h"
#include "expedite/base/read_text.h"
#include "expedite/base/text.h"
#include "expedite/plan/builtin_clusters.h"
#include "expedite/plan/csv.h"
#include "expedite/plan/step_cost.h"

namespace expedite::plan {
namespace {

constexpr std::array<std::string_view, 9> kMetricNames = {"iter_time_s",
                                                          "tokens_per_s_per_device",
                                                          "samples_per_s_per_device",
                                                          "model_tflops_per_device",
                                                          "hw_tflops_per_device_incl_recompute",
                                                          "mfu_pct",
                                                          "hfu_pct",
                                                          "peak_alloc_GiB",
                                                          "peak_mem_GB"};

constexpr std::array<std::string_view, 30> kColumns = {"id",
                                                       "model",
                                                       "layers",
                                                       "hidden",
                                                       "ffn",
                                                       "moe_ffn",
                                                       "heads",
                                                       "kv_heads",
                                                       "experts",
                                                       "topk",
                                                       "shared_experts",
                                                       "first_dense_layers",
                                                       "vocab",
                                                       "seq",
                                                       "hardware",
                                                       "n_devices",
                                                       "tp",
                                                       "pp",
                                                       "vpp",
                                                       "ep",
                                                       "etp",
                                                       "dp",
                                                       "cp",
                                                       "micro_batch",
                                                       "global_batch",
                                                       "recompute",
                                                       "precision",
                                                       "metric",
                                                       "value",
                                                       "source"};

// Far above any time, rate or memory.
constexpr double kHighestValue = 1e12;

// Megatron's vocabulary where a GPT run does not say: GPT-2's, padded to a multiple of 128 * 8.
constexpr std::int64_t kGptVocabulary = 51200;

/// A row's cells by column.
class Row {
 public:
  Row(const CsvTable& table, const CsvTable::Row& row, const std::string& where)
      : table_(table), row_(row), where_(where) {}

  [[nodiscard]] const std::string& text(std::string_view column) const {
    const auto found = std::ranges::find(table_.columns, column);
    return row_.cells[static_cast<std::size_t>(found - table_.columns.begin())];
  }
  [[nodiscard]] bool has(std::string_view column) const { return !text(column).empty(); }
  [[nodiscard]] std::int64_t count(std::string_view column, std::int64_t otherwise,
                                   std::int64_t lowest = 0) const {
    const std::string& cell = text(column);
    if (cell.empty()) {
      return otherwise;
    }
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    constexpr std::int64_t kHighest = 1 << 30;
    require(error == std::errc() && end == cell.data() + cell.size() && value >= lowest && value <= kHighest,
            "{}:{}: {} = {}: expected a whole number from {} to {}", where_, row_.line, column, cell, lowest,
            kHighest);
    return value;
  }
  [[nodiscard]] std::int64_t needed(std::string_view column) const {
    require(has(column), "{}:{}: {} is blank; it must be a whole number of 1 or more", where_, row_.line,
            column);
    return count(column, 0, 1);
  }
  [[nodiscard]] double positive(std::string_view column) const {
    const std::string& cell = text(column);
    double value = 0.0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    require(error == std::errc() && end == cell.data() + cell.size() && value > 0.0 && value <= kHighestValue,
            "{}:{}: {} = {}: expected a number above 0 and at most {:g}", where_, row_.line, column, cell,
            kHighestValue);
    return value;
  }
  [[nodiscard]] std::string place() const { return fmt::format("{}:{}", where_, row_.line); }

 private:
  const CsvTable& table_;
  const CsvTable::Row& row_;
  const std::string& where_;
};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

/// The built-in model of the longest name that `name` begins with; null when there is none.
const ModelConfig* architecture_of(std::string_view name) {
  const ModelConfig* best = nullptr;
  std::size_t length = 0;
  for (const std::string& builtin : architecture::builtin_model_names()) {
    if (name.starts_with(builtin) && builtin.size() > length) {
      best = architecture::find_builtin_model(builtin);
      length = builtin.size();
    }
  }
  return best;
}

ModelConfig read_model(const Row& row) {
  const std::string name = lower(row.text("model"));
  const ModelConfig* published = architecture_of(name);
  ModelConfig model = published != nullptr ? *published : ModelConfig{};
  model.name = name;
  model.hidden_size = row.needed("hidden");
  model.heads = row.needed("heads");
  model.kv_heads = row.count("kv_heads", model.heads, 1);
  model.vocab_size = row.count("vocab", published != nullptr ? model.vocab_size : kGptVocabulary, 1);
  model.intermediate_size = row.count("ffn", model.intermediate_size);
  model.moe_intermediate_size = row.count("moe_ffn", model.moe_intermediate_size);
  model.experts = row.count("experts", 0);
  model.experts_per_token = row.count("topk", 0);
  model.shared_expert_intermediate_size = row.count("shared_experts", 0) * model.moe_intermediate_size;
  const std::int64_t layers = row.needed("layers");
  require(layers <= 4096, "{}: layers = {} must be at most 4096", row.place(), layers);
  model.layers = layers;
  model.sparse.assign(static_cast<std::size_t>(layers), false);
  model.windowed.resize(static_cast<std::size_t>(layers));
  if (model.experts > 0) {
    const std::int64_t first = std::min(row.count("first_dense_layers", 0), layers);
    std::fill(model.sparse.begin() + first, model.sparse.end(), true);
  }
  if (published == nullptr) {
    require(model.hidden_size % model.heads == 0, "{}: hidden {} must be a multiple of heads {}", row.place(),
            model.hidden_size, model.heads);
    model.head_dim = model.hidden_size / model.heads;
    model.mlp = name.starts_with("gpt") || model.intermediate_size == 4 * model.hidden_size
                    ? architecture::MlpKind::plain
                    : architecture::MlpKind::gated;
    model.tie_word_embeddings = model.mlp == architecture::MlpKind::plain;
    model.qkv_bias = model.output_bias = model.mlp_bias = model.mlp == architecture::MlpKind::plain;
    model.value_dim = model.head_dim;
  }
  const std::string& source = row.text("source");
  if (contains(source, "w/o MTP") || !contains(source, "Megatron-Bridge")) {
    model.prediction_layers = 0;
  }
  check_sizes(model, row.place());
  return model;
}

/// Which program a source measured.
const Software* read_software(const Row& row) {
  const std::string& source = row.text("source");
  const auto named = [](std::string_view name) { return find_software(name); };
  if (const std::size_t at = source.find("NeMo 2");
      at != source.npos && contains(source, "Megatron-Bridge")) {
    const std::string release = source.substr(at + 5, 5);
    // 26.08 differs from 26.06 in one table of four rows.
    return named("megatron-bridge-" + (release == "26.08" ? std::string("26.06") : release));
  }
  if (contains(source, "Megatron-LM baseline")) {
    return named("megatron-lm-2023");
  }
  if (contains(source, "ZeRO-3")) {
    return named("deepspeed-zero3-2021");
  }
  constexpr std::array<std::array<std::string_view, 2>, 10> kSources = {
      {{"2104.04473", "megatron-lm-2021"},
       {"2205.05198", "megatron-lm-2022"},
       {"vTrain", "megatron-lm-vtrain"},
       {"2401.10241", "zero-bubble"},
       {"2402.15627", "megascale"},
       {"Megatron-LM repo", "megatron-core-2024"},
       {"2407.21783", "llama3-training"},
       {"torchtitan", "torchtitan"},
       {"AutoModel", "nemo-automodel"},
       {"SimuMax", "megatron-core-2025"}}};
  for (const auto& [part, name] : kSources) {
    if (contains(source, part)) {
      return named(name);
    }
  }
  return &default_software();
}

Recompute read_recompute(const Row& row, const Software& software) {
  const std::string& text = row.text("recompute");
  if (text.empty()) {
    return software.fused_attention ? Recompute::none : Recompute::selective;
  }
  if (text == "none" || text == "full") {
    return text == "none" ? Recompute::none : Recompute::full;
  }
  if (text == "selective(core_attn)") {
    return Recompute::selective;
  }
  require(text == "selective(op)" || text == "selective(layer)",
          "{}: recompute = {}: expected none, full, selective(core_attn), selective(op), selective(layer) or "
          "blank",
          row.place(), text);
  return Recompute::half;
}

Precision read_precision(const Row& row) {
  const std::string text = lower(row.text("precision"));
  if (text == "fp8-mx") {
    return Precision::mxfp8;
  }
  if (text == "fp8-cs") {
    return Precision::fp8;
  }
  const std::optional<Precision> precision = parse_precision(text);
  require(precision.has_value(),
          "{}: precision = {}: expected bf16, fp16, fp8, fp8-cs, mxfp8, fp8-mx or nvfp4", row.place(),
          row.text("precision"));
  return *precision;
}

Pipeline read_pipeline(const std::string& source) {
  if (contains(source, "schedule=ZB-1p")) {
    return Pipeline::zero_bubble_h1;
  }
  return contains(source, "schedule=ZB-2p") ? Pipeline::zero_bubble_h2 : Pipeline::one_f_one_b;
}

std::int32_t narrow(std::int64_t value) {
  return static_cast<std::int32_t>(value);
}

/// What no program can do, whatever its own limits.
void check_strategy(const Row& row, const Run& run) {
  const Strategy& s = run.strategy;
  const ModelConfig& model = run.model;
  require(model.heads % s.tp == 0, "{}: tp = {} must divide the {} heads", row.place(), s.tp, model.heads);
  // Some count embedding and head as a layer each.
  require(std::int64_t{s.pp} * s.vpp <= model.layers + 2,
          "{}: vpp = {}: pp * vpp must be at most {}, the layers with embedding and head", row.place(), s.vpp,
          model.layers + 2);
  require(run.workload.global_batch % (std::int64_t{s.dp} * s.micro_batch) == 0,
          "{}: global_batch = {} must be a multiple of n_devices / (tp * cp * pp) * micro_batch = {}",
          row.place(), run.workload.global_batch, std::int64_t{s.dp} * s.micro_batch);
  if (model.experts == 0) {
    require(s.ep == 1 && s.etp == 1, "{}: ep = {}, etp = {}: a model without experts has 1 of both",
            row.place(), s.ep, s.etp);
    return;
  }
  require(model.experts % s.ep == 0 && model.moe_intermediate_size % s.etp == 0,
          "{}: ep = {} must divide the {} experts and etp = {} their moe_ffn {}", row.place(), s.ep,
          model.experts, s.etp, model.moe_intermediate_size);
  const std::int64_t ranks = std::int64_t{s.tp} * s.cp * s.dp;
  require(ranks % (std::int64_t{s.ep} * s.etp) == 0, "{}: ep * etp = {} must divide n_devices / pp = {}",
          row.place(), std::int64_t{s.ep} * s.etp, ranks);
}

void read_strategy(const Row& row, Run& run) {
  const std::string& source = row.text("source");
  Strategy& s = run.strategy;
  s.tp = narrow(row.count("tp", 1, 1));
  s.cp = narrow(row.count("cp", 1, 1));
  s.pp = narrow(row.count("pp", 1, 1));
  s.etp = narrow(row.count("etp", 1, 1));
  const std::int64_t devices = row.needed("n_devices");
  const std::int64_t others = std::int64_t{s.tp} * s.cp * s.pp;
  require(devices % others == 0, "{}: n_devices {} must be a multiple of tp * cp * pp = {}", row.place(),
          devices, others);
  require(s.pp <= kMaxStages, "{}: pp = {} must be at most {}", row.place(), s.pp, kMaxStages);
  s.dp = narrow(devices / others);
  require(row.count("dp", s.dp, 1) == s.dp, "{}: dp = {}: n_devices / (tp * cp * pp) is {}", row.place(),
          row.text("dp"), s.dp);
  s.ep = narrow(row.count("ep", run.model.experts > 0 ? std::min<std::int64_t>(devices, 64) : 1, 1));
  run.vpp_unknown = !row.has("vpp") && s.pp > 1 && contains(source, "interleaved");
  s.vpp = narrow(row.count("vpp", 1, 1));
  run.micro_batch_unknown = !row.has("micro_batch");
  s.micro_batch = narrow(row.count("micro_batch", 1, 1));
  run.workload.seq = row.needed("seq");
  run.workload.global_batch = row.count("global_batch", std::int64_t{4} * s.pp * s.dp * s.micro_batch, 1);
  s.recompute = read_recompute(row, *run.software);
  s.pipeline = read_pipeline(source);
  s.sequence_parallel = run.software->sequence_parallel && !contains(source, "no sequence parallel");
  const bool sharded = contains(source, "FSDP") || contains(source, "ZeRO-3");
  s.zero = sharded ? 3 : run.software->distributed_optimizer ? 1 : 0;
  if (run.model.experts > 0 && !row.has("ep")) {
    // Dispatched over all data-parallel ranks of a stage.
    s.ep = std::min(s.ep, narrow(run.model.experts));
    while (s.ep > 1 && (run.model.experts % s.ep != 0 || (devices / s.pp) % s.ep != 0)) {
      --s.ep;
    }
  }
  check_strategy(row, run);
}

std::vector<std::string> device_kinds() {
  std::vector<std::string> kinds;
  for (const DeviceFacts& facts : published_devices()) {
    kinds.emplace_back(facts.kind);
  }
  return kinds;
}

FlopCount read_flop_count(const Run& run, const std::string& source) {
  if (run.metric == Metric::hw_tflops_per_device_incl_recompute) {
    return FlopCount::with_full_recompute;
  }
  if (run.metric == Metric::hfu_pct) {
    return FlopCount::with_core_recompute;
  }
  const bool causal =
      contains(source, "Megatron-Bridge") || contains(source, "AutoModel") || contains(source, "2407.21783");
  return causal ? FlopCount::causal : FlopCount::full_attention;
}

Run read_run(const Row& row) {
  Run run;
  run.id = row.text("id");
  run.hardware = row.text("hardware");
  require(!run.id.empty(), "{}: id is blank; name the run", row.place());
  run.configuration = run.id.substr(0, run.id.find('/'));
  const std::size_t dash = run.configuration.find('-');
  run.group = run.configuration.substr(0, run.configuration.find('-', std::min(dash, run.id.size() - 1) + 1));
  const auto metric = std::ranges::find(kMetricNames, row.text("metric"));
  require(metric != kMetricNames.end(), "{}: metric = {}: expected {}", row.place(), row.text("metric"),
          join_choices(std::vector<std::string>(kMetricNames.begin(), kMetricNames.end())));
  run.metric = static_cast<Metric>(metric - kMetricNames.begin());
  run.published = row.positive("value");
  require(find_device_facts(run.hardware) != nullptr, "{}: hardware = {}: legal are {}", row.place(),
          run.hardware, join_choices(device_kinds()));
  const std::string& source = row.text("source");
  run.software = read_software(row);
  require(run.software != nullptr, "{}: source = {}: no constants for that release; known are {}",
          row.place(), source, join_choices(software_names()));
  run.model = read_model(row);
  run.precision = read_precision(row);
  read_strategy(row, run);
  if (run.model.experts > 0 && run.strategy.ep > 1) {
    run.strategy.dispatcher = run.software->dispatcher;
  }
  // The cluster of these runs has half of its devices' published network.
  if (contains(source, "800 Gb/s per node")) {
    run.scale_out_gb_per_s = 12.5;
  }
  run.flop_count = read_flop_count(run, source);
  run.forced_balance = contains(source, "force-balanced") || contains(source, "perfect balance") ||
                       contains(source, "balanced gate") || contains(source, "token-drop");
  // Releases before 26.06 counted 0.79 to 0.83 of the model's FLOP.
  const bool old_release = run.software->name.starts_with("megatron-bridge") &&
                           run.software->name < std::string_view("megatron-bridge-26.06");
  run.comparable =
      !(kind_of(run.metric) == MetricKind::flops && old_release && run.model.name.starts_with("gpt-oss"));
  return run;
}

}  // namespace

MetricKind kind_of(Metric metric) {
  switch (metric) {
    case Metric::iter_time_s:
    case Metric::tokens_per_s_per_device:
    case Metric::samples_per_s_per_device:
      return MetricKind::time;
    case Metric::peak_alloc_gib:
    case Metric::peak_mem_gb:
      return MetricKind::memory;
    default:
      return MetricKind::flops;
  }
}

std::string_view name_of(Metric metric) {
  return kMetricNames[static_cast<std::size_t>(metric)];
}

std::vector<Run> parse_runs(std::string_view text, const std::string& where) {
  const CsvTable table = parse_csv(text, where);
  for (const std::string_view column : kColumns) {
    require(std::ranges::find(table.columns, column) != table.columns.end(), "{}: the column {} is missing",
            where, column);
  }
  std::vector<Run> runs;
  for (const CsvTable::Row& row : table.rows) {
    runs.push_back(read_run(Row(table, row, where)));
  }
  require(!runs.empty(), "{}: no runs below the header", where);
  return runs;
}

std::vector<Run> read_runs(const std::string& path) {
  return parse_runs(read_text(path), path);
}

bool in_fitted_half(const Run& run, std::string_view salt) {
  std::uint64_t hash = 14695981039346656037U;
  for (const std::string_view part : {salt, std::string_view(run.configuration)}) {
    for (const unsigned char c : part) {
      hash = (hash ^ c) * 1099511628211U;
    }
  }
  return (hash >> 32U) % 2 == 0;
}

double counted_flops(const Run& run) {
  const ModelConfig& model = run.model;
  const double causal = model_flops(model, run.workload);
  if (run.flop_count == FlopCount::causal) {
    return causal;
  }
  const double tokens =
      static_cast<double>(run.workload.global_batch) * static_cast<double>(run.workload.seq);
  const double scores = 6.0 * tokens * static_cast<double>(run.workload.seq * model.layers) *
                        static_cast<double>(model.heads * (model.head_dim + model.value_dim));
  const double full = causal + 0.5 * scores;
  switch (run.flop_count) {
    case FlopCount::with_core_recompute:
      return full + scores;
    case FlopCount::with_full_recompute: {
      const double head = 6.0 * tokens * static_cast<double>(model.hidden_size * model.vocab_size);
      return full + (full - head) / 3.0;
    }
    default:
      return full;
  }
}

}  // namespace expedite::plan
