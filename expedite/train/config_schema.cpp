#include "expedite/train/config_schema.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <type_traits>

#include "expedite/base/text.h"
#include "expedite/launch/launcher.h"

namespace expedite::train {
namespace {

constexpr Range kAny = {};
// Every number has an upper limit too, far beyond any use.
constexpr double kMost = 2147483647.0;
constexpr Range kNotNegative = {.low = 0.0, .high = kMost};
constexpr Range kAtLeastOne = {.low = 1.0, .high = kMost};
constexpr Range kChunks = {.low = 0.0,
                           .high = 1024.0};  // a schedule of all layers can still be built and checked
constexpr Range kWindow = {.low = 1.0, .high = 1024.0};
constexpr Range kPositive = {.low = 0.0, .high = 1000.0, .low_open = true};
constexpr Range kRanks = {.low = 0.0, .high = static_cast<double>(launch::kMostRanks)};
constexpr Range kSeed = {.low = 0.0, .high = 1e18};
constexpr Range kShare = {.low = 0.0, .high = 1.0};
constexpr Range kFraction = {.low = 0.0, .high = 1.0, .high_open = true};

constexpr Field kFields[] = {
    {"name", [](TrainConfig& c) -> Slot { return &c.name; }, kAny,
     "Name of the run: its folder inside `output_dir`"},
    {"seed", [](TrainConfig& c) -> Slot { return &c.seed; }, kSeed,
     "Seed of the initial weights, the shuffling and the train/validation split"},
    {"output_dir", [](TrainConfig& c) -> Slot { return &c.output_dir; }, kAny, "Folder of all runs"},
    {"dtype", [](TrainConfig& c) -> Slot { return &c.dtype; }, kAny, "Type of weights and activations"},

    {"model.path", [](TrainConfig& c) -> Slot { return &c.model.path; }, kAny,
     "Hugging Face model folder or `config.json` that gives the architecture; or use `model.config`"},
    {"model.load_weights", [](TrainConfig& c) -> Slot { return &c.model.load_weights; }, kAny,
     "Start from the safetensors in `model.path` instead of random weights"},
    {"model.config", [](TrainConfig& c) -> Slot { return &c.model.config; }, kAny,
     "The fields of a Hugging Face `config.json`, written here"},

    {"parallel.ranks", [](TrainConfig& c) -> Slot { return &c.parallel.ranks; }, kRanks,
     "Ranks to start where neither `--ranks` nor `--lab` nor a launcher says how many; 0: one"},
    {"parallel.expert_parallel_size", [](TrainConfig& c) -> Slot { return &c.parallel.expert_parallel_size; },
     kNotNegative, "Ranks that share one set of experts (EP); 0: all ranks"},
    {"parallel.schedule", [](TrainConfig& c) -> Slot { return &c.parallel.schedule; }, kAny,
     "What builds a training step: micro-batches one after the other, or a forward beside a backward"},
    {"parallel.ep_plan.dispatcher", [](TrainConfig& c) -> Slot { return &c.parallel.ep_plan.dispatcher; },
     kAny, "How tokens reach the ranks of their experts"},
    {"parallel.ep_plan.moe_num_chunks",
     [](TrainConfig& c) -> Slot { return &c.parallel.ep_plan.moe_num_chunks; }, kChunks,
     "Chunks of an expert layer's tokens; 0: as `moe_chunk_size` says; `auto`: from measured rates"},
    {"parallel.ep_plan.moe_chunk_size",
     [](TrainConfig& c) -> Slot { return &c.parallel.ep_plan.moe_chunk_size; }, kNotNegative,
     "Tokens of a chunk, where `moe_num_chunks` is 0; 0: one chunk"},
    {"parallel.ep_plan.moe_chunk_pipeline",
     [](TrainConfig& c) -> Slot { return &c.parallel.ep_plan.moe_chunk_pipeline; }, kAny,
     "How chunks overlap: a window that is kept full, two by two, or not at all"},
    {"parallel.ep_plan.moe_chunk_window",
     [](TrainConfig& c) -> Slot { return &c.parallel.ep_plan.moe_chunk_window; }, kWindow,
     "Chunks under way at once in the continuous pipeline"},
    {"parallel.ep_plan.chunk_moe_recompute",
     [](TrainConfig& c) -> Slot { return &c.parallel.ep_plan.chunk_moe_recompute; }, kAny,
     "What experts compute again in backward instead of keeping it: nothing, the activation (cheap), or "
     "gate/up too"},

    {"moe.router_load_balancing_type",
     [](TrainConfig& c) -> Slot { return &c.moe.router_load_balancing_type; }, kAny,
     "What keeps the experts evenly loaded"},
    {"moe.aux_loss_coeff", [](TrainConfig& c) -> Slot { return &c.moe.aux_loss_coeff; }, kNotNegative,
     "Weight of the auxiliary load-balance loss"},
    {"moe.z_loss_coeff", [](TrainConfig& c) -> Slot { return &c.moe.z_loss_coeff; }, kNotNegative,
     "Weight of the router's z-loss"},
    {"moe.router_bias_update_rate", [](TrainConfig& c) -> Slot { return &c.moe.router_bias_update_rate; },
     kNotNegative, "Step of the selection bias per training step, for the load balancing type `bias`"},

    {"data.path", [](TrainConfig& c) -> Slot { return &c.data.path; }, kAny,
     "Text files and folders (read recursively), one or a list"},
    {"data.extensions", [](TrainConfig& c) -> Slot { return &c.data.extensions; }, kAny,
     "Only files with these endings, as in `[.pod, .txt]`; empty: every text file"},
    {"data.tokenizer", [](TrainConfig& c) -> Slot { return &c.data.tokenizer; }, kAny,
     "`bytes`, a `tokenizer.json`, a SentencePiece `.model`, or a folder that holds one; empty: that of "
     "`model.path`, and where it has none, bytes"},
    {"data.max_lost_fraction", [](TrainConfig& c) -> Slot { return &c.data.max_lost_fraction; }, kShare,
     "How much of the text's bytes the tokenizer may lose (what is not in decode(encode(text))); more is an "
     "error"},
    {"data.validation_fraction", [](TrainConfig& c) -> Slot { return &c.data.validation_fraction; },
     kFraction, "Part of the text that is kept for validation"},
    {"data.seq_length", [](TrainConfig& c) -> Slot { return &c.data.seq_length; }, kAtLeastOne,
     "Tokens of a sequence"},

    {"train.steps", [](TrainConfig& c) -> Slot { return &c.train.steps; }, kAtLeastOne, "Optimizer steps"},
    {"train.global_batch_size", [](TrainConfig& c) -> Slot { return &c.train.global_batch_size; },
     kAtLeastOne, "Sequences per step, over all ranks"},
    {"train.micro_batch_size", [](TrainConfig& c) -> Slot { return &c.train.micro_batch_size; }, kAtLeastOne,
     "Sequences per rank and micro-batch"},
    {"train.log_interval", [](TrainConfig& c) -> Slot { return &c.train.log_interval; }, kAtLeastOne,
     "Steps between updates of the progress line (`metrics.jsonl` has a line for every step)"},
    {"train.eval_interval", [](TrainConfig& c) -> Slot { return &c.train.eval_interval; }, kNotNegative,
     "Steps between validations; 0: only at the end"},
    {"train.eval_sequences", [](TrainConfig& c) -> Slot { return &c.train.eval_sequences; }, kNotNegative,
     "Sequences of a validation during training; 0: the whole validation text"},
    {"train.max_minutes", [](TrainConfig& c) -> Slot { return &c.train.max_minutes; }, kNotNegative,
     "Stop, with a checkpoint, after this time; 0: no limit"},

    {"optimizer.lr", [](TrainConfig& c) -> Slot { return &c.optimizer.lr; }, kPositive,
     "Learning rate after the warm-up"},
    {"optimizer.min_lr", [](TrainConfig& c) -> Slot { return &c.optimizer.min_lr; }, kNotNegative,
     "Learning rate at the end of the cosine decay"},
    {"optimizer.warmup_steps", [](TrainConfig& c) -> Slot { return &c.optimizer.warmup_steps; }, kNotNegative,
     "Steps of linear warm-up"},
    {"optimizer.weight_decay", [](TrainConfig& c) -> Slot { return &c.optimizer.weight_decay; }, kNotNegative,
     "Decoupled weight decay (AdamW)"},
    {"optimizer.beta1", [](TrainConfig& c) -> Slot { return &c.optimizer.beta1; }, kFraction,
     "Decay of the gradient's running mean"},
    {"optimizer.beta2", [](TrainConfig& c) -> Slot { return &c.optimizer.beta2; }, kFraction,
     "Decay of the squared gradient's running mean"},
    {"optimizer.eps", [](TrainConfig& c) -> Slot { return &c.optimizer.eps; }, kPositive,
     "Added to the root of the squared gradient's mean"},
    {"optimizer.clip_grad", [](TrainConfig& c) -> Slot { return &c.optimizer.clip_grad; }, kNotNegative,
     "Largest norm of the whole gradient; 0: no clipping"},

    {"checkpoint.save_interval", [](TrainConfig& c) -> Slot { return &c.checkpoint.save_interval; },
     kNotNegative, "Steps between checkpoints; 0: only at the end"},
    {"checkpoint.keep", [](TrainConfig& c) -> Slot { return &c.checkpoint.keep; }, kNotNegative,
     "How many checkpoints to keep; 0: all"},

    {"trace.first_step", [](TrainConfig& c) -> Slot { return &c.trace.first_step; }, kNotNegative,
     "First step recorded in `trace.json`, numbered as in `metrics.jsonl`"},
    {"trace.steps", [](TrainConfig& c) -> Slot { return &c.trace.steps; }, kNotNegative,
     "Steps recorded; 0: no trace"},

    {"runtime.collective_timeout_s", [](TrainConfig& c) -> Slot { return &c.runtime.collective_timeout_s; },
     kNotNegative,
     "A collective that waits longer ends the run with a report of every stream; 0: wait for ever"},
    {"runtime.stop_timeout_s", [](TrainConfig& c) -> Slot { return &c.runtime.stop_timeout_s; }, kNotNegative,
     "After a signal to stop, the step under way may take so long, or twice the longest step so far where "
     "that "
     "is more; then the run ends without saving; 0: no limit"},
    {"runtime.threads_per_rank", [](TrainConfig& c) -> Slot { return &c.runtime.threads_per_rank; },
     kNotNegative, "Compute threads of a rank; 0: as many as its share of the cores"},
    {"runtime.bf16_products", [](TrainConfig& c) -> Slot { return &c.runtime.bf16_products; }, kAny,
     "How bf16 matrices are multiplied: with the CPU's bf16 instructions, widened to f32, or as the CPU does "
     "it "
     "faster"},
};

constexpr std::array kDTypes = {EnumName<DType>{DType::bf16, "bf16"}, EnumName<DType>{DType::f32, "f32"}};
constexpr std::array kDispatchers = {
    EnumName<Dispatcher>{Dispatcher::alltoall, "alltoall"},
    EnumName<Dispatcher>{Dispatcher::zero_redundancy, "zero_redundancy"},
    EnumName<Dispatcher>{Dispatcher::hierarchical, "hierarchical"},
    EnumName<Dispatcher>{Dispatcher::hierarchical_dedup, "hierarchical_dedup"},
    EnumName<Dispatcher>{Dispatcher::automatic, kAutomatic}};
using schedule::ChunkPipeline;
constexpr std::array kPipelines = {EnumName<ChunkPipeline>{ChunkPipeline::continuous, "continuous"},
                                   EnumName<ChunkPipeline>{ChunkPipeline::pairwise, "pairwise"},
                                   EnumName<ChunkPipeline>{ChunkPipeline::none, "none"}};
using schedule::MoeRecompute;
constexpr std::array kRecomputes = {EnumName<MoeRecompute>{MoeRecompute::none, "false"},
                                    EnumName<MoeRecompute>{MoeRecompute::activation, "true"},
                                    EnumName<MoeRecompute>{MoeRecompute::full, "full"}};
constexpr std::array kLoadBalancings = {EnumName<LoadBalancing>{LoadBalancing::aux_loss, "aux_loss"},
                                        EnumName<LoadBalancing>{LoadBalancing::seq_aux_loss, "seq_aux_loss"},
                                        EnumName<LoadBalancing>{LoadBalancing::none, "none"},
                                        EnumName<LoadBalancing>{LoadBalancing::bias, "bias"}};

using kernels::Bf16Products;
constexpr std::array kBf16Products = {EnumName<Bf16Products>{Bf16Products::automatic, kAutomatic},
                                      EnumName<Bf16Products>{Bf16Products::native, "native"},
                                      EnumName<Bf16Products>{Bf16Products::widened, "widened"}};

std::string with_range(std::string_view type, const Range& range) {
  const std::string text = range.text();
  return text.empty() ? std::string(type) : fmt::format("{} {}", type, text);
}

}  // namespace

bool Range::holds(double value) const {
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::string Range::text() const {
  if (std::isinf(low) && std::isinf(high)) {
    return "";
  }
  if (std::isinf(high)) {
    return fmt::format("{} {}", low_open ? ">" : ">=", low);
  }
  if (std::isinf(low)) {
    return fmt::format("{} {}", high_open ? "<" : "<=", high);
  }
  return fmt::format("in {}{}, {}{}", low_open ? '(' : '[', low, high, high_open ? ')' : ']');
}

std::span<const Field> schema() {
  return kFields;
}

std::span<const EnumName<DType>> enum_names(DType) {
  return kDTypes;
}
std::span<const EnumName<Dispatcher>> enum_names(Dispatcher) {
  return kDispatchers;
}
std::span<const EnumName<schedule::ChunkPipeline>> enum_names(schedule::ChunkPipeline) {
  return kPipelines;
}
std::span<const EnumName<schedule::MoeRecompute>> enum_names(schedule::MoeRecompute) {
  return kRecomputes;
}
std::span<const EnumName<LoadBalancing>> enum_names(LoadBalancing) {
  return kLoadBalancings;
}
std::span<const EnumName<kernels::Bf16Products>> enum_names(kernels::Bf16Products) {
  return kBf16Products;
}
std::span<const EnumName<const schedule::Builder*>> enum_names(const schedule::Builder*) {
  static const std::vector<EnumName<const schedule::Builder*>> kBuilders = [] {
    std::vector<EnumName<const schedule::Builder*>> names;
    for (const schedule::Builder& builder : schedule::step_builders()) {
      names.push_back({&builder, builder.name});
    }
    return names;
  }();
  return kBuilders;
}

std::string legal_values(const Field& field) {
  TrainConfig config;
  return std::visit(
      [&](auto* slot) -> std::string {
        using Value = std::remove_pointer_t<decltype(slot)>;
        if constexpr (std::is_same_v<Value, bool>) {
          return "true or false";
        } else if constexpr (std::is_same_v<Value, std::int64_t>) {
          return with_range("an integer", field.range);
        } else if constexpr (std::is_same_v<Value, double>) {
          return with_range("a number", field.range);
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return "a string";
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return "a string or a list of strings";
        } else if constexpr (std::is_same_v<Value, nlohmann::json>) {
          return "a map";
        } else if constexpr (std::is_same_v<Value, ChunkCount>) {
          return fmt::format("{}, or {}", with_range("an integer", field.range), kAutomatic);
        } else {
          std::vector<std::string> names;
          for (const auto& entry : enum_names(*slot)) {
            names.emplace_back(entry.name);
          }
          return join_choices(names);
        }
      },
      field.slot(config));
}

}  // namespace expedite::train
