#include "expedite/cli/option_meanings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "expedite/base/text.h"
#include "expedite/cli/app_tree.h"
#include "expedite/train/key_meanings.h"

namespace expedite::cli {
namespace {

/// "--World_Size=4" as "world-size".
std::string bare(std::string_view given) {
  given = given.substr(0, given.find('='));
  given.remove_prefix(std::min(given.find_first_not_of('-'), given.size()));
  std::string name(given);
  for (char& c : name) {
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

bool has(const CLI::App& command, std::string_view option) {
  return command.get_option_no_throw(std::string(option)) != nullptr;
}

std::optional<std::string> by_meaning(const CLI::App& command, const std::string& name) {
  for (const OptionMeaning& meaning : option_meanings()) {
    if (std::ranges::find(meaning.names, name) == meaning.names.end()) {
      continue;
    }
    for (const std::string_view option : meaning.options) {
      if (has(command, option)) {
        return std::string(option);
      }
    }
  }
  return std::nullopt;
}

/// A word of a parallel strategy, where the command takes strategies as one option.
std::optional<std::string> as_strategy(const CLI::App& command, const std::string& name) {
  struct Knob {
    std::string_view knob;
    std::vector<std::string_view> names;
  };
  static const std::vector<Knob> kKnobs = {
      {"tp", {"tensor-parallel", "tensor-parallel-size", "tensor-model-parallel-size", "tp-size"}},
      {"pp", {"pipeline-parallel", "pipeline-parallel-size", "pipeline-model-parallel-size", "pp-size"}},
      {"ep", {"expert-parallel", "expert-parallel-size", "expert-model-parallel-size", "ep-size"}},
      {"cp", {"context-parallel", "context-parallel-size", "cp-size"}},
      {"vpp", {"virtual-pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank"}},
      {"mb", {"micro-batch-size", "micro-batch", "mbs"}},
      {"zero", {"zero-stage"}}};
  for (const Knob& each : kKnobs) {
    if (each.knob != name && std::ranges::find(each.names, name) == each.names.end()) {
      continue;
    }
    for (const char* option : {"--explain", "--strategy"}) {
      if (has(command, option)) {
        return fmt::format("a part of a strategy: {} {}=VALUE,...", option, each.knob);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::span<const OptionMeaning> option_meanings() {
  static const std::vector<OptionMeaning> kMeanings = {
      {{"--ranks"},
       {"n", "np", "nproc", "nprocs", "procs", "processes", "num-processes", "ntasks", "workers",
        "num-workers", "nproc-per-node", "world-size", "num-gpus", "gpus", "num-ranks"}},
      {{"--devices"},
       {"gpus", "num-gpus", "ngpus", "num-devices", "world-size", "accelerators", "npus", "n"}},
      {{"--lab"}, {"nodes", "nnodes", "num-nodes"}},
      {{"--global-batch"}, {"global-batch-size", "batch-size", "batch", "gbs", "train-batch-size"}},
      {{"--seq"},
       {"seq-len", "seq-length", "seqlen", "sequence-length", "max-seq-len", "max-seq-length",
        "context-length"}},
      {{"--cluster"}, {"hardware", "gpu", "gpu-type", "machine", "system", "hw"}},
      {{"--model"}, {"model-name", "model-path", "model-config", "model-name-or-path"}},
      {{"--out", "--json"}, {"o", "output", "output-file", "out-file", "save"}},
      {{"--json"}, {"out", "format"}},
      {{"--trace"}, {"profile", "timeline", "chrome-trace", "perfetto"}},
      {{"CONFIG"}, {"config", "config-file", "c", "f", "file", "cfg"}},
      {{"--set"}, {"override", "overrides", "o"}},
      {{"--resume"},
       {"continue", "restart", "load", "resume-from-checkpoint", "from-checkpoint", "load-checkpoint"}},
      {{"--expert-parallel-size"}, {"ep", "ep-size", "expert-parallel", "expert-model-parallel-size"}},
      {{"--threads"}, {"j", "jobs", "cores", "cpus", "num-threads", "nthreads", "omp-num-threads"}},
      {{"--hidden"}, {"hidden-size", "h", "d-model", "n-embd"}},
      {{"--ffn"},
       {"ffn-hidden-size", "intermediate-size", "moe-ffn-hidden-size", "moe-intermediate-size", "d-ff"}},
      {{"--experts"}, {"num-experts", "n-experts", "num-local-experts", "e"}},
      {{"--topk"}, {"k", "top-k", "moe-router-topk", "num-experts-per-tok"}},
      {{"--layers"}, {"num-layers", "n-layers", "num-hidden-layers"}},
      {{"--heads"}, {"num-heads", "n-heads", "num-attention-heads"}},
      {{"--kv-heads"}, {"num-query-groups", "num-key-value-heads", "num-kv-heads"}},
      {{"--vocab"}, {"vocab-size", "padded-vocab-size"}},
      {{"--tokens"}, {"num-tokens", "seq-len", "seq-length", "tokens-per-rank", "batch-size", "t"}},
      {{"--steps", "--rounds"}, {"iters", "iterations", "train-iters", "max-steps", "repeat", "repetitions"}},
      {{"--dispatcher"}, {"moe-token-dispatcher-type", "token-dispatcher", "alltoall", "dispatch"}},
      {{"--recompute"}, {"recompute-granularity", "activation-checkpointing", "gradient-checkpointing"}},
      {{"--dtype", "--precision"}, {"dtype", "type", "precision", "bf16", "fp32", "f32"}},
      {{"--stages"}, {"pp", "pipeline-model-parallel-size", "pipeline-parallel-size", "num-stages"}},
      {{"--micro-batches"}, {"num-microbatches", "num-micro-batches", "gradient-accumulation-steps", "gas"}},
      {{"--schedules"}, {"schedule", "pipeline-schedule"}},
      {{"--memory-limit"}, {"memory", "max-memory", "gpu-memory", "hbm"}},
      {{"--tolerance"}, {"atol", "rtol", "tol", "epsilon"}},
      {{"--software"}, {"framework", "backend"}},
      {{"--emit"}, {"launcher", "flags", "print-flags"}},
      {{"--top"}, {"topn", "top-n", "limit", "count"}},
  };
  return kMeanings;
}

std::string advice_for_option(const CLI::App& command, const std::string& given) {
  const std::string name = bare(given);
  if (const auto meant = by_meaning(command, name)) {
    return fmt::format("{} is meant for that here", *meant);
  }
  if (const auto strategy = as_strategy(command, name)) {
    return *strategy;
  }
  if (has(command, "--set")) {
    if (const auto keys = train::keys_meant_by(name); !keys.empty()) {
      return fmt::format("a key of the configuration: --set {}=VALUE", fmt::join(keys, "=VALUE or --set "));
    }
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : visible_options(command)) {
    for (const std::string& spelling : spellings(*option)) {
      names.push_back(spelling);
    }
  }
  return "the nearest is " + nearest_name("--" + name, names);
}

}  // namespace expedite::cli
