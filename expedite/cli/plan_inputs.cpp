#include "expedite/cli/plan_inputs.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "expedite/architecture/parameter_count.h"
#include "expedite/base/error.h"
#include "expedite/base/read_text.h"
#include "expedite/base/text.h"
#include "expedite/cli/legal_values.h"
#include "expedite/cli/usage.h"
#include "expedite/plan/builtin_clusters.h"

namespace expedite::cli {
namespace {

/// Loads of the experts, one number per expert, separated by spaces, commas or lines.
std::vector<double> read_load(const std::string& path, std::int64_t experts) {
  const std::string text = read_text(path);
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

plan::ExpertLoad expert_load(const PlanInputs& inputs, const ModelConfig& model) {
  require(inputs.zipf == 0.0 || inputs.load.empty(), "--zipf and --load say different things; give one");
  require(model.experts > 0 || (inputs.zipf == 0.0 && inputs.load.empty()),
          "--zipf and --load are about experts, which {} does not have", model.name);
  if (!inputs.load.empty()) {
    return {.weights = read_load(inputs.load, model.experts)};
  }
  if (inputs.zipf > 0.0) {
    return {.weights = cost::zipf_weights(model.experts, inputs.zipf), .by_expert = false};
  }
  return {};
}

}  // namespace

void require_strategy_inputs(const PlanInputs& inputs, const std::string& strategy,
                             const std::string& otherwise) {
  std::vector<std::string> missing;
  const auto need = [&](bool given, const char* option) {
    if (!given) {
      missing.emplace_back(option);
    }
  };
  need(!inputs.model.empty(), "--model");
  need(!inputs.cluster.empty(), "--cluster");
  need(inputs.devices > 0, "--devices");
  need(inputs.workload.global_batch > 0, "--global-batch");
  need(!strategy.empty(), "--strategy");
  require_usage(missing.empty(), "a strategy's step needs {} too; {}", fmt::join(missing, ", "), otherwise);
}

plan::CostContext make_context(const PlanInputs& inputs, const ModelConfig& model) {
  const cost::Cluster cluster = plan::load_cluster(inputs.cluster, inputs.devices);
  const plan::Machine machine = plan::make_machine(cluster, inputs.devices, inputs.device);
  const plan::Software* software = plan::find_software(inputs.software);
  require(software != nullptr, "--software {}: legal are {}", inputs.software,
          join_choices(plan::software_names()));
  const auto precision = plan::parse_precision(inputs.precision);
  require(precision.has_value(), "--precision {}: legal are {}", inputs.precision,
          join_choices(std::vector<std::string>(plan::kPrecisionNames.begin(), plan::kPrecisionNames.end())));
  const std::string& kind = inputs.device.empty() ? cluster.devices.front().kind : inputs.device;
  return {model,
          machine,
          inputs.workload,
          *precision,
          plan::builtin_calibration().of(kind, software->name),
          *software,
          expert_load(inputs, model),
          inputs.forced_balance};
}

std::string describe(const PlanInputs& inputs, const ModelConfig& model) {
  return fmt::format("{}: {:.1f} B parameters, {:.1f} B active; {} devices of {}, {}, constants of {}\n",
                     model.name, static_cast<double>(total_parameters(model)) * 1e-9,
                     static_cast<double>(active_parameters(model)) * 1e-9, inputs.devices, inputs.cluster,
                     inputs.precision, inputs.software);
}

plan::Strategy legal_strategy(const PlanInputs& inputs, const ModelConfig& model, const std::string& option,
                              const std::string& text) {
  const plan::Strategy strategy = plan::parse_strategy(text, inputs.devices);
  if (const auto reason = plan::illegal(strategy, model, inputs.workload, inputs.devices)) {
    fail("{} {}: {}", option, text, plan::explain(*reason, strategy, model, inputs.workload, inputs.devices));
  }
  return strategy;
}

void add_plan_inputs(CLI::App& command, PlanInputs& inputs, bool required) {
  constexpr std::int64_t kMost = 1 << 30;
  command.add_option("--model", inputs.model, "A built-in model, a config.json or its folder")
      ->required(required);
  command.add_option("--cluster", inputs.cluster, "A built-in cluster or a YAML file")->required(required);
  command.add_option("--device", inputs.device, "The kind of device, of a cluster with several");
  whole_number(command.add_option("--devices", inputs.devices, "How many devices"), 1, std::int64_t{1} << 20)
      ->required(required);
  whole_number(command.add_option("--global-batch", inputs.workload.global_batch, "Sequences per step"), 1,
               kMost)
      ->required(required);
  whole_number(command.add_option("--seq", inputs.workload.seq, "Tokens per sequence"), 1, kMost)
      ->capture_default_str();
  command.add_option("--precision", inputs.precision, "Of products: bf16, fp16, fp8, mxfp8 or nvfp4")
      ->capture_default_str();
  command.add_option("--software", inputs.software, "Whose efficiencies to assume")->capture_default_str();
  number(command.add_option("--zipf", inputs.zipf,
                            "Experts' loads follow Zipf's law with this exponent, in any order"),
         0.0, 10.0);
  command.add_option("--load", inputs.load,
                     "A file of experts' measured loads, a number for each, in their order");
  command.add_flag("--forced-balance", inputs.forced_balance, "Routing made even, as in benchmarks");
}

}  // namespace expedite::cli
