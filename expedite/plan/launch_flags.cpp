#include "expedite/plan/launch_flags.h"

#include <fmt/format.h>

#include "expedite/base/error.h"

namespace expedite::plan {
namespace {

using schedule::Dispatcher;

class Flags {
 public:
  void add(std::string_view flag) { text_ += fmt::format("{}\n", flag); }
  template <typename T>
  void add(std::string_view flag, const T& value) {
    text_ += fmt::format("{} {}\n", flag, value);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// What Megatron-LM and MindSpeed, which is built on it, share.
void common(Flags& flags, const Strategy& s, const Workload& workload) {
  flags.add("--tensor-model-parallel-size", s.tp);
  if (s.tp > 1 && s.sequence_parallel) {
    flags.add("--sequence-parallel");
  }
  flags.add("--pipeline-model-parallel-size", s.pp);
  if (s.vpp > 1) {
    flags.add("--num-virtual-stages-per-pipeline-rank", s.vpp);
  }
  flags.add("--context-parallel-size", s.cp);
  flags.add("--micro-batch-size", s.micro_batch);
  flags.add("--global-batch-size", workload.global_batch);
  flags.add("--seq-length", workload.seq);
  if (s.zero == 1) {
    flags.add("--use-distributed-optimizer");
    flags.add("--overlap-grad-reduce");
    flags.add("--overlap-param-gather");
  }
}

void recompute(Flags& flags, const Strategy& s, const Transformer& model, bool megatron) {
  switch (s.recompute) {
    case Recompute::none:
      break;
    case Recompute::selective:
      flags.add("--recompute-activations");
      break;
    case Recompute::moe_act:
      if (megatron) {
        flags.add("--recompute-granularity", "selective");
        flags.add("--recompute-modules", "moe_act");
      } else {
        flags.add("--recompute-activation-function");
      }
      break;
    case Recompute::half: {
      const std::int64_t layers = (model.layer_count() + model.mtp_layers) / s.pp / s.vpp;
      flags.add("--recompute-granularity", "full");
      flags.add("--recompute-method", "block");
      flags.add("--recompute-num-layers", std::max<std::int64_t>(1, layers / 2));
      break;
    }
    case Recompute::full:
      flags.add("--recompute-granularity", "full");
      flags.add("--recompute-method", "uniform");
      flags.add("--recompute-num-layers", 1);
      break;
  }
}

}  // namespace

void keep_what_it_can(Launcher launcher, SearchSpace& space) {
  space.pipeline = {Pipeline::one_f_one_b};
  space.dispatcher = {Dispatcher::alltoall};
  if (launcher == Launcher::megatron) {
    space.dispatcher.push_back(Dispatcher::hierarchical_dedup);
    space.chunks = {1};
    return;
  }
  space.pipeline.push_back(Pipeline::dualpipe);
  space.dispatcher.push_back(Dispatcher::zero_redundancy);
  std::erase_if(space.zero, [](std::int32_t zero) { return zero > 1; });
}

std::string launch_flags(Launcher launcher, const Strategy& s, const Transformer& model,
                         const Workload& workload) {
  const bool megatron = launcher == Launcher::megatron;
  const char* program = megatron ? "megatron" : "mindspeed";
  require(s.pipeline == Pipeline::one_f_one_b || (s.pipeline == Pipeline::dualpipe && !megatron),
          "--emit {}: pipeline {} is not one of its schedules; {}", program,
          kPipelineNames[static_cast<std::size_t>(s.pipeline)],
          megatron ? "1f1b is, with vpp for interleaving" : "1f1b and dualpipe are");
  require(!megatron || s.chunks == 1,
          "--emit megatron: it does not cut an MoE layer's tokens; chunks must be 1");
  Flags flags;
  common(flags, s, workload);
  if (s.zero >= 2) {
    require(megatron, "--emit mindspeed: zero {} is not emitted for it; 0 and 1 are", s.zero);
    flags.add("--use-megatron-fsdp");
    flags.add("--data-parallel-sharding-strategy", s.zero == 2 ? "optim_grads" : "optim_grads_params");
  }
  recompute(flags, s, model, megatron);
  if (s.pipeline == Pipeline::dualpipe) {
    flags.add("--schedules-method", "dualpipev");
  }
  if (model.experts == 0) {
    return flags.take();
  }
  flags.add("--num-experts", model.experts);
  flags.add("--moe-router-topk", model.topk);
  flags.add("--expert-model-parallel-size", s.ep);
  flags.add("--expert-tensor-parallel-size", s.etp);
  flags.add("--moe-grouped-gemm");
  if (megatron) {
    require(s.dispatcher == Dispatcher::alltoall || s.dispatcher == Dispatcher::hierarchical_dedup,
            "--emit megatron: dispatcher {} is not one of its own; alltoall and hierarchical_dedup (its flex "
            "dispatcher) are",
            name_of(s.dispatcher));
    const bool flat = s.dispatcher == Dispatcher::alltoall;
    flags.add("--moe-token-dispatcher-type", flat ? "alltoall" : "flex");
    if (!flat) {
      flags.add("--moe-enable-deepep");
    }
    return flags.take();
  }
  flags.add("--moe-token-dispatcher-type", "alltoall");
  require(s.dispatcher == Dispatcher::alltoall || s.dispatcher == Dispatcher::zero_redundancy,
          "--emit mindspeed: dispatcher {} is not one of its own; alltoall and zero_redundancy are",
          name_of(s.dispatcher));
  if (s.dispatcher == Dispatcher::zero_redundancy) {
    flags.add("--moe-zerc");
  }
  if (s.chunks > 1) {
    flags.add("--moe-num-chunks", s.chunks);
  }
  return flags.take();
}

}  // namespace expedite::plan
