#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <memory>

#include "expedite/base/cores.h"
#include "expedite/base/error.h"
#include "expedite/base/text.h"
#include "expedite/cli/commands.h"
#include "expedite/cli/text_file.h"
#include "expedite/plan/builtin_clusters.h"
#include "expedite/plan/launch_flags.h"
#include "expedite/plan/plan_report.h"

namespace expedite::cli {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

struct PlanOptions {
  std::string model;
  std::string cluster;
  std::string device;
  std::int64_t devices = 0;
  plan::Workload workload;
  std::string precision = "bf16";
  std::string software = std::string(plan::default_software().name);
  double zipf = 0.0;
  std::string load;
  bool forced_balance = false;
  std::int64_t top = 10;
  double memory_limit_gib = 0.0;
  std::string json;
  std::string explain;
  std::string emit;
  bool exhaustive = false;
  int threads = 0;
};

/// Loads of the experts, one number per expert, separated by spaces, commas or lines.
std::vector<double> read_load(const std::string& path, std::int64_t experts) {
  const std::string text = read_text_file(path);
  std::vector<double> load;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    while (at != end && (std::isspace(static_cast<unsigned char>(*at)) != 0 || *at == ',')) {
      ++at;
    }
    if (at == end) {
      break;
    }
    double value = 0.0;
    const auto [next, error] = std::from_chars(at, end, value);
    require(error == std::errc() && value > 0.0 && value < 1e300,
            "{}: expert {}: expected a number above 0 for each expert", path, load.size());
    load.push_back(value);
    at = next;
  }
  require(std::ssize(load) == experts, "{}: {} loads, but the model has {} experts", path, load.size(),
          experts);
  return load;
}

std::vector<double> expert_load(const PlanOptions& options, const plan::Transformer& model) {
  require(options.zipf == 0.0 || options.load.empty(), "--zipf and --load say different things; give one");
  require(model.experts > 0 || (options.zipf == 0.0 && options.load.empty()),
          "--zipf and --load are about experts, which {} does not have", model.name);
  if (!options.load.empty()) {
    return read_load(options.load, model.experts);
  }
  return options.zipf > 0.0 ? cost::zipf_weights(model.experts, options.zipf) : std::vector<double>{};
}

plan::CostContext make_context(const PlanOptions& options, const plan::Transformer& model) {
  const cost::Cluster cluster = plan::load_cluster(options.cluster, options.devices);
  const plan::Machine machine = plan::make_machine(cluster, options.devices, options.device);
  const plan::Software* software = plan::find_software(options.software);
  require(software != nullptr, "--software {}: legal are {}", options.software,
          join_choices(plan::software_names()));
  const auto precision = plan::parse_precision(options.precision);
  require(precision.has_value(), "--precision {}: legal are {}", options.precision,
          join_choices(std::vector<std::string>(plan::kPrecisionNames.begin(), plan::kPrecisionNames.end())));
  const std::string& kind = options.device.empty() ? cluster.devices.front().kind : options.device;
  return {model,
          machine,
          options.workload,
          *precision,
          plan::builtin_calibration().of(kind, software->name),
          *software,
          expert_load(options, model),
          options.forced_balance};
}

void show_progress(double share) {
  constexpr int kWidth = 40;
  const int filled = static_cast<int>(share * kWidth);
  fmt::print(stderr, "\r[{:<{}}] {:3.0f} %", std::string(static_cast<std::size_t>(filled), '='), kWidth,
             100.0 * share);
  std::fflush(stderr);
}

plan::Launcher launcher_of(const PlanOptions& options) {
  return options.emit == "megatron" ? plan::Launcher::megatron : plan::Launcher::mindspeed;
}

plan::SearchSpace space_of(const PlanOptions& options, const plan::CostContext& context) {
  plan::SearchSpace space = plan::default_space(context, options.devices);
  if (!options.emit.empty()) {
    plan::keep_what_it_can(launcher_of(options), space);
  }
  return space;
}

void emit(const PlanOptions& options, const plan::Strategy& strategy, const plan::Transformer& model) {
  if (!options.emit.empty()) {
    fmt::print("\n{}", plan::launch_flags(launcher_of(options), strategy, model, options.workload));
  }
}

void explain(const PlanOptions& options, const plan::CostContext& context, double memory_limit) {
  const plan::Strategy strategy = plan::parse_strategy(options.explain, options.devices);
  if (const auto reason = plan::illegal(strategy, context.model(), options.workload, options.devices)) {
    fail("--explain {}: {}", options.explain,
         plan::explain(*reason, strategy, context.model(), options.workload, options.devices));
  }
  fmt::print("{}", plan::explain_strategy(context, strategy, space_of(options, context), memory_limit));
  emit(options, strategy, context.model());
}

int run_plan(const PlanOptions& options) {
  const plan::Transformer model = plan::load_transformer(options.model);
  const plan::CostContext context = make_context(options, model);
  const double memory_limit =
      options.memory_limit_gib > 0.0 ? options.memory_limit_gib * kGib : context.machine().memory_bytes;
  fmt::print("{}: {:.1f} B parameters, {:.1f} B active; {} devices of {}, {}, constants of {}\n", model.name,
             static_cast<double>(plan::total_parameters(model)) * 1e-9,
             static_cast<double>(plan::active_parameters(model)) * 1e-9, options.devices, options.cluster,
             options.precision, options.software);
  if (!options.explain.empty()) {
    explain(options, context, memory_limit);
    return 0;
  }
  plan::SearchOptions search{.devices = options.devices,
                             .top = options.top,
                             .memory_limit = memory_limit,
                             .threads = options.threads > 0 ? options.threads : count_cores().bound,
                             .prune = !options.exhaustive,
                             .progress = {}};
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) {
    search.progress = show_progress;
  }
  const plan::SearchResult result = plan::search(context, space_of(options, context), search);
  if (terminal) {
    fmt::print(stderr, "\r{:60}\r", "");
  }
  fmt::print("{}", plan::describe(result, memory_limit));
  if (!options.json.empty()) {
    write_text_file(options.json, plan::to_json(result));
  }
  if (result.best.empty()) {
    return 1;
  }
  emit(options, result.best.front().strategy, model);
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app.add_subcommand("plan", "Find the fastest parallel strategy for a model on a cluster");
  constexpr std::int64_t kMost = 1 << 30;
  command->add_option("--model", options->model, "A built-in model, a config.json or its folder")->required();
  command->add_option("--cluster", options->cluster, "A built-in cluster or a YAML file")->required();
  command->add_option("--device", options->device, "The kind of device, of a cluster with several");
  command->add_option("--devices", options->devices, "How many devices")
      ->required()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  command->add_option("--global-batch", options->workload.global_batch, "Sequences per step")
      ->required()
      ->check(CLI::Range(std::int64_t{1}, kMost));
  command->add_option("--seq", options->workload.seq, "Tokens per sequence")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, kMost));
  command->add_option("--precision", options->precision, "Of products: bf16, fp16, fp8, mxfp8 or nvfp4")
      ->capture_default_str();
  command->add_option("--software", options->software, "Whose efficiencies to assume")->capture_default_str();
  command->add_option("--zipf", options->zipf, "Experts' loads follow Zipf's law with this exponent")
      ->check(CLI::Range(0.0, 10.0));
  command->add_option("--load", options->load, "A file of experts' measured loads, a number for each");
  command->add_flag("--forced-balance", options->forced_balance, "Routing made even, as in benchmarks");
  command->add_option("--top", options->top, "How many strategies to show")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000}));
  command->add_option("--memory-limit", options->memory_limit_gib, "GiB of a device; all of it if not given")
      ->check(CLI::Range(0.001, 1e6));
  command->add_option("--json", options->json, "Write the result to this file");
  command->add_option("--explain", options->explain, "Cost this one: tp=8,pp=16,vpp=2,ep=32,...");
  command
      ->add_option("--emit", options->emit,
                   "Print launch flags: of the best that the program can run, or of --explain's")
      ->check(CLI::IsMember({"megatron", "mindspeed"}));
  command->add_flag("--exhaustive", options->exhaustive, "Cost every strategy, pruning none");
  command->add_option("--threads", options->threads, "Threads of the search; all cores if not given")
      ->check(CLI::Range(1, 1024));
  command->callback([options, &context] { context.exit_code = run_plan(*options); });
}

}  // namespace expedite::cli
