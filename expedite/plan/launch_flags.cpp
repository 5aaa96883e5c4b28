#include "expedite/plan/launch_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "expedite/base/error.h"
#include "expedite/plan/pipeline_split.h"

namespace expedite::plan {
namespace {

using schedule::Dispatcher;

class Flags {
 public:
  void comment(std::string_view text) { text_ += fmt::format("# {}\n", text); }
  void add(std::string_view flag) { text_ += fmt::format("{}\n", flag); }
  template <typename T>
  void add(std::string_view flag, const T& value) {
    text_ += fmt::format("{} {}\n", flag, value);
  }
  void add_quoted(std::string_view flag, std::string_view value) {
    text_ += fmt::format("{} \"{}\"\n", flag, value);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// As a Python expression, runs alike together: "[0]*3+[1]*58".
std::string layer_pattern(const std::vector<bool>& sparse) {
  std::string pattern;
  for (auto begin = sparse.begin(); begin != sparse.end();) {
    const auto end = std::find(begin, sparse.end(), !*begin);
    pattern += fmt::format("{}[{}]*{}", pattern.empty() ? "" : "+", *begin ? 1 : 0, end - begin);
    begin = end;
  }
  return pattern;
}

class Writer {
 public:
  Writer(Launcher launcher, const CostContext& context, const Strategy& strategy)
      : megatron_(launcher == Launcher::megatron),
        context_(context),
        model_(context.model()),
        s_(strategy),
        split_(pipeline_split(context, strategy)) {}

  std::string write(Release oldest) {
    about(oldest);
    parallelism();
    layers();
    precision();
    optimizer();
    recompute();
    if (model_.experts > 0) {
      experts();
    }
    return flags_.take();
  }

 private:
  [[nodiscard]] bool dualpipe() const { return s_.pipeline == Pipeline::dualpipe; }
  [[nodiscard]] bool sharded_weights() const { return s_.zero >= 2; }
  /// MindSpeed's list of layers knows no virtual stages and no stage without layers.
  [[nodiscard]] bool by_list() const {
    return !megatron_ && s_.vpp == 1 && !split_.has_part_without_layers();
  }
  [[nodiscard]] bool by_layout() const { return s_.pp > 1 && !dualpipe() && !split_.even() && !by_list(); }

  void about(Release oldest) {
    if (megatron_) {
      flags_.comment(fmt::format("Megatron-LM, core 0.{} to 0.{}", oldest, kNewestMegatron));
      if (sharded_weights()) {
        flags_.comment("environment: CUDA_DEVICE_MAX_CONNECTIONS unset or above 1");
      } else if (s_.tp > 1 || s_.cp > 1) {
        flags_.comment("environment: CUDA_DEVICE_MAX_CONNECTIONS=1 on devices before Blackwell");
      }
      return;
    }
    flags_.comment(by_layout() ? "MindSpeed-LLM 26.1, on Megatron core 0.12.1"
                               : "MindSpeed-LLM 2.3 to 26.1, on Megatron core 0.12.1");
    if (s_.tp > 1 || s_.cp > 1) {
      flags_.comment("environment: CUDA_DEVICE_MAX_CONNECTIONS=1");
    }
  }

  void parallelism() {
    flags_.add("--tensor-model-parallel-size", s_.tp);
    if (s_.tp > 1 && s_.sequence_parallel) {
      flags_.add("--sequence-parallel");
    }
    flags_.add("--pipeline-model-parallel-size", s_.pp);
    flags_.add("--context-parallel-size", s_.cp);
    flags_.add("--micro-batch-size", s_.micro_batch);
    const Workload& workload = context_.workload();
    flags_.add("--global-batch-size", workload.global_batch);
    flags_.add("--seq-length", workload.seq);
    flags_.add("--max-position-embeddings", std::max(workload.seq, model_.positions));
  }

  /// How many layers, and on which stages.
  void layers() {
    if (dualpipe()) {
      dualpipev_layers();
    } else {
      flags_.add("--num-layers", model_.layers);
      if (by_layout()) {
        flags_.add_quoted("--pipeline-model-parallel-layout", layout_of(split_));
      } else if (!split_.even()) {
        flags_.add("--num-layer-list", fmt::format("{}", fmt::join(split_.layers, ",")));
      } else if (s_.vpp > 1 && megatron_) {
        flags_.add("--num-virtual-stages-per-pipeline-rank", s_.vpp);
      } else if (s_.vpp > 1) {
        flags_.add("--num-layers-per-virtual-pipeline-stage", split_.most_layers());
      }
    }
    if (model_.prediction_layers > 0) {
      flags_.add("--mtp-num-layers", model_.prediction_layers);
    }
    if (!model_.tie_word_embeddings) {
      flags_.add("--untie-embeddings-and-output-weights");
    }
  }

  void dualpipev_layers() {
    const std::int64_t idle = *idle_layers_of_dualpipev(launch());
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < idle; ++i) {
      numbers.push_back(model_.layers + i);
    }
    flags_.add("--num-layers", model_.layers + idle);
    if (idle > 0) {
      flags_.add("--noop-layers", fmt::format("{}", fmt::join(numbers, ",")));
    }
    flags_.add("--schedules-method", "dualpipev");
  }

  void precision() {
    const Precision precision = context_.precision();
    flags_.add(precision == Precision::fp16 ? "--fp16" : "--bf16");
    if (precision == Precision::fp8 || precision == Precision::mxfp8) {
      flags_.add("--fp8-format", "hybrid");
      flags_.add("--fp8-recipe", precision == Precision::fp8 ? "tensorwise" : "mxfp8");
    } else if (precision == Precision::nvfp4) {
      flags_.add("--fp4-format", "e2m1");
    }
  }

  void optimizer() {
    if (s_.zero == 0) {
      return;
    }
    flags_.add("--use-distributed-optimizer");
    if (sharded_weights()) {
      flags_.add("--use-megatron-fsdp");
      flags_.add("--data-parallel-sharding-strategy", s_.zero == 2 ? "optim_grads" : "optim_grads_params");
      flags_.add("--ckpt-format", "fsdp_dtensor");
    }
    if (!dualpipe()) {  // which reduces gradients at its end
      flags_.add("--overlap-grad-reduce");
      flags_.add("--overlap-param-gather");
    }
  }

  void recompute() {
    switch (s_.recompute) {
      case Recompute::none:
        break;
      case Recompute::selective:
        flags_.add("--recompute-activations");
        break;
      case Recompute::moe_act:
        if (megatron_) {
          flags_.add("--recompute-granularity", "selective");
          flags_.add("--recompute-modules", "moe_act");
        } else {
          flags_.add("--recompute-activation-function");
        }
        break;
      case Recompute::half:
        // Of every part as many layers as are half of the largest.
        flags_.add("--recompute-granularity", "full");
        flags_.add("--recompute-method", "block");
        flags_.add("--recompute-num-layers", (split_.most_layers() + 1) / 2);
        break;
      case Recompute::full:
        flags_.add("--recompute-granularity", "full");
        flags_.add("--recompute-method", "uniform");
        flags_.add("--recompute-num-layers", 1);
        break;
    }
  }

  void experts() {
    flags_.add("--num-experts", model_.experts);
    dense_layers();
    flags_.add("--moe-router-topk", model_.experts_per_token);
    if (model_.experts_per_token == 1) {
      flags_.add("--moe-router-pre-softmax");
    }
    flags_.add("--expert-model-parallel-size", s_.ep);
    flags_.add("--expert-tensor-parallel-size", s_.etp);
    flags_.add("--moe-grouped-gemm");
    const bool flat = s_.dispatcher == Dispatcher::alltoall;
    flags_.add("--moe-token-dispatcher-type", flat ? "alltoall" : "flex");
    if (!flat) {
      flags_.add("--moe-enable-deepep");
      flags_.add("--moe-router-dtype", "fp32");  // DeepEP takes no other probabilities
    }
  }

  void dense_layers() {
    const std::int64_t dense = model_.count(architecture::LayerKind::dense);
    if (dense == 0) {
      return;
    }
    if (megatron_) {
      flags_.add_quoted("--moe-layer-freq", layer_pattern(model_.sparse));
    } else {
      flags_.add("--first-k-dense-replace", dense);
      flags_.add("--moe-layer-freq", 1);
    }
  }

  [[nodiscard]] Launch launch() const { return {s_, model_, context_.workload(), context_.precision()}; }

  bool megatron_;
  const CostContext& context_;
  const ModelConfig& model_;
  const Strategy& s_;
  PipelineSplit split_;
  Flags flags_;
};

}  // namespace

void keep_what_it_can(Launcher launcher, const CostContext& context, SearchSpace& space) {
  space.accepted = [launcher, &context](const Strategy& strategy) {
    return oldest_release(launcher, {strategy, context.model(), context.workload(), context.precision()})
        .has_value();
  };
  // What it refuses of the plainest strategy it refuses of all: that is the model's, or the precision's.
  const Strategy one;
  const Launch plain{one, context.model(), context.workload(), context.precision()};
  require(oldest_release(launcher, plain).has_value(), "--emit {}: {}",
          kLauncherNames[static_cast<std::size_t>(launcher)], why_refused(launcher, plain));
  // What it never accepts need not be tried with everything else.
  const auto keep = [&](auto& values, auto Strategy::*knob) {
    std::erase_if(values, [&](const auto& value) {
      Strategy alone;
      alone.*knob = value;
      return !space.accepted(alone);
    });
  };
  keep(space.chunks, &Strategy::chunks);
  keep(space.dispatcher, &Strategy::dispatcher);
}

std::string launch_flags(Launcher launcher, const CostContext& context, const Strategy& strategy) {
  const Launch launch{strategy, context.model(), context.workload(), context.precision()};
  const std::optional<Release> oldest = oldest_release(launcher, launch);
  require(oldest.has_value(), "--emit {}: {}", kLauncherNames[static_cast<std::size_t>(launcher)],
          why_refused(launcher, launch));
  return Writer(launcher, context, strategy).write(*oldest);
}

}  // namespace expedite::plan
