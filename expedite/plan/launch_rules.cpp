#include "expedite/plan/launch_rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace expedite::plan {
namespace {

using schedule::Dispatcher;

bool dualpipe(const Launch& l) {
  return l.strategy.pipeline == Pipeline::dualpipe;
}

/// Dense layers before the first with experts.
std::int64_t leading_dense(const ModelConfig& model) {
  return std::ranges::find(model.sparse, true) - model.sparse.begin();
}

std::string_view name_of_pipeline(const Launch& l) {
  return kPipelineNames[static_cast<std::size_t>(l.strategy.pipeline)];
}

// Megatron-LM: validate_args in megatron/training/arguments.py, __post_init__ of TransformerConfig and
// ModelParallelConfig, PipelineParallelLayerLayout, and the token dispatchers, of core_v0.12.1, core_v0.14.0,
// core_v0.15.3, core_v0.16.1, core_v0.19.0 and main of 22 August 2026 (core 0.20). MindSpeed: validate_args
// of the features in mindspeed/features_manager (026.1) and mindspeed_llm/features_manager (26.1).
constexpr LaunchRule kRules[] = {
    {"schedule", true, false, kNever,
     [](const Launch& l) { return l.strategy.pipeline == Pipeline::one_f_one_b; },
     [](const Launch& l) {
       return fmt::format("pipeline {} is not one of its schedules; 1f1b is, with vpp for interleaving",
                          name_of_pipeline(l));
     }},
    {"schedule of MindSpeed", false, true, kNever,
     [](const Launch& l) { return l.strategy.pipeline == Pipeline::one_f_one_b || dualpipe(l); },
     [](const Launch& l) {
       return fmt::format("pipeline {} is not one of its schedules; 1f1b and dualpipe are",
                          name_of_pipeline(l));
     }},
    {"chunks", true, true, kNever, [](const Launch& l) { return l.strategy.chunks == 1; },
     [](const Launch& l) {
       return fmt::format("chunks {}: it has no flag that cuts an MoE layer's tokens; chunks must be 1",
                          l.strategy.chunks);
     }},
    {"dispatcher", true, false, kNever,
     [](const Launch& l) {
       return l.strategy.dispatcher == Dispatcher::alltoall ||
              l.strategy.dispatcher == Dispatcher::hierarchical_dedup;
     },
     [](const Launch& l) {
       return fmt::format(
           "dispatcher {} is not one of its own; alltoall and hierarchical_dedup (its flex dispatcher) are",
           name_of(l.strategy.dispatcher));
     }},
    {"dispatcher of MindSpeed", false, true, kNever,
     [](const Launch& l) { return l.strategy.dispatcher == Dispatcher::alltoall; },
     [](const Launch& l) {
       return fmt::format(
           "dispatcher {} is not one of its own; alltoall is (--moe-zerc, zero_redundancy, was dropped after "
           "MindSpeed-LLM 2.3)",
           name_of(l.strategy.dispatcher));
     }},
    {"sharding in MindSpeed", false, true, kNever, [](const Launch& l) { return l.strategy.zero <= 1; },
     [](const Launch& l) {
       return fmt::format("zero {} is not emitted for it, whose core has no Megatron FSDP; 0 and 1 are",
                          l.strategy.zero);
     }},
    {"narrow products in MindSpeed", false, true, kNever,
     [](const Launch& l) { return factor_bytes(l.precision) >= 2.0; },
     [](const Launch& l) {
       return fmt::format("precision {} is not emitted for it; bf16 and fp16 are", name_of(l.precision));
     }},
    {"experts in fp16", true, true, 16,
     [](const Launch& l) { return l.precision != Precision::fp16 || l.strategy.ep == 1; },
     [](const Launch& l) {
       return fmt::format("ep {} in fp16: expert parallelism needs bf16 before core 0.16", l.strategy.ep);
     }},
    {"products in 4 bits", true, true, 15, [](const Launch& l) { return l.precision != Precision::nvfp4; },
     [](const Launch&) { return std::string("precision nvfp4 needs core 0.15"); }},
    {"heads of keys and values", true, true, 16,
     [](const Launch& l) { return l.model.kv_heads % l.strategy.tp == 0; },
     [](const Launch& l) {
       return fmt::format("tp {} must divide the {} key-value heads before core 0.16", l.strategy.tp,
                          l.model.kv_heads);
     }},
    {"sequence parallelism with experts", true, true, kNever,
     [](const Launch& l) {
       return l.model.experts == 0 || l.strategy.tp == 1 || l.strategy.sequence_parallel;
     },
     [](const Launch& l) {
       return fmt::format("tp {} with experts needs sequence parallelism; drop sp=0", l.strategy.tp);
     }},
    {"biases of experts", true, true, kNever,
     [](const Launch& l) { return l.model.experts == 0 || !l.model.mlp_bias || l.strategy.etp == 1; },
     [](const Launch& l) { return fmt::format("etp {}: experts with biases need etp=1", l.strategy.etp); }},
    {"activation of experts", true, true, kNever,
     [](const Launch& l) { return l.strategy.recompute != Recompute::moe_act || l.model.experts > 0; },
     [](const Launch&) {
       return std::string("recompute=moe_act is about experts, which the model does not have");
     }},
    {"positions", true, true, kNever,
     [](const Launch& l) { return l.model.positions == 0 || l.workload.seq <= l.model.positions; },
     [](const Launch& l) {
       return fmt::format("--seq {} is beyond the {} learned positions of the model", l.workload.seq,
                          l.model.positions);
     }},
    {"prediction with context parallelism", false, true, 13,
     [](const Launch& l) { return l.model.prediction_layers == 0 || l.strategy.cp == 1; },
     [](const Launch& l) {
       return fmt::format("cp {} with multi-token prediction: core 0.12 needs cp=1", l.strategy.cp);
     }},
    {"prediction with learned positions", true, true, kNever,
     [](const Launch& l) { return l.model.prediction_layers == 0 || l.model.positions == 0; },
     [](const Launch&) {
       return std::string("multi-token prediction needs rotary embedding, not learned positions");
     }},
    {"leading dense layers", false, true, kNever,
     [](const Launch& l) {
       return l.model.experts == 0 || l.model.count(architecture::LayerKind::dense) == leading_dense(l.model);
     },
     [](const Launch&) {
       return std::string(
           "layers with experts between dense ones: --first-k-dense-replace knows dense "
           "layers before the others only");
     }},
    {"dense layers of a stage", false, true, kNever,
     [](const Launch& l) {
       return l.model.experts == 0 || l.strategy.pp == 1 || leading_dense(l.model) == 0 ||
              leading_dense(l.model) < l.model.layers / l.strategy.pp;
     },
     [](const Launch& l) {
       const std::int64_t dense = leading_dense(l.model);
       return fmt::format(
           "pp {}: --first-k-dense-replace {} must be below layers / pp = {}; take pp up to {}",
           l.strategy.pp, dense, l.model.layers / l.strategy.pp, l.model.layers / (dense + 1));
     }},
    {"DualPipeV with context parallelism", false, true, kNever,
     [](const Launch& l) { return !dualpipe(l) || l.strategy.cp == 1; },
     [](const Launch& l) {
       return fmt::format("cp {}: --schedules-method dualpipev needs cp=1", l.strategy.cp);
     }},
    {"DualPipeV with tied embeddings", false, true, kNever,
     [](const Launch& l) { return !dualpipe(l) || !l.model.tie_word_embeddings; },
     [](const Launch&) {
       return std::string(
           "--schedules-method dualpipev needs a head of its own, and the model ties it to "
           "the embedding");
     }},
    {"chunks of DualPipeV", false, true, kNever,
     [](const Launch& l) { return !dualpipe(l) || idle_layers_of_dualpipev(l).has_value(); },
     [](const Launch& l) {
       return fmt::format(
           "pp {}: --schedules-method dualpipev cuts {} layers into 2 * pp equal chunks, of which the last "
           "would be empty",
           l.strategy.pp, l.model.layers);
     }},
};

bool is_of(const LaunchRule& rule, Launcher launcher) {
  return launcher == Launcher::megatron ? rule.of_megatron : rule.of_mindspeed;
}

/// The newest core that the program is built on.
Release newest(Launcher launcher) {
  return launcher == Launcher::megatron ? kNewestMegatron : kMindSpeedCore;
}

}  // namespace

std::span<const LaunchRule> launch_rules() {
  return kRules;
}

std::optional<Release> oldest_release(Launcher launcher, const Launch& launch) {
  Release oldest = launcher == Launcher::megatron ? kOldestMegatron : kMindSpeedCore;
  for (const LaunchRule& rule : kRules) {
    if (is_of(rule, launcher) && !rule.met(launch)) {
      oldest = std::max(oldest, rule.since);
    }
  }
  return oldest <= newest(launcher) ? std::optional(oldest) : std::nullopt;
}

std::string why_refused(Launcher launcher, const Launch& launch) {
  for (const LaunchRule& rule : kRules) {
    if (is_of(rule, launcher) && rule.since > newest(launcher) && !rule.met(launch)) {
      return rule.refusal(launch);
    }
  }
  return "";
}

std::optional<std::int64_t> idle_layers_of_dualpipev(const Launch& launch) {
  const std::int64_t chunks = 2 * std::int64_t{launch.strategy.pp};
  const std::int64_t per_chunk = (launch.model.layers + chunks - 1) / chunks;
  const std::int64_t idle = per_chunk * chunks - launch.model.layers;
  return idle < per_chunk ? std::optional(idle) : std::nullopt;
}

}  // namespace expedite::plan
