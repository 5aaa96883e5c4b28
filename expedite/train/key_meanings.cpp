#include "expedite/train/key_meanings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "expedite/base/text.h"

namespace expedite::train {
namespace {

/// What has no key, and why.
struct Elsewhere {
  std::string_view advice;
  std::vector<std::string_view> names;
};

std::span<const Elsewhere> elsewhere() {
  static const std::vector<Elsewhere> kElsewhere = {
      {"the number of ranks is --ranks, or mpirun's and srun's",
       {"world_size", "nproc", "nproc_per_node", "num_processes", "ranks", "num_ranks", "num_gpus", "gpus",
        "devices", "ntasks"}},
      {"nodes inside one machine are --lab, others mpirun's and srun's", {"nnodes", "num_nodes", "nodes"}},
      {"training is data and expert parallel alone; only `expedite plan` knows tensor, pipeline and context "
       "parallelism",
       {"tp", "tp_size", "tensor_parallel", "tensor_parallel_size", "tensor_model_parallel_size",
        "tensor_parallel_degree", "pp", "pp_size", "pipeline_parallel", "pipeline_parallel_size",
        "pipeline_model_parallel_size", "pipeline_parallel_degree", "cp", "cp_size", "context_parallel",
        "context_parallel_size", "context_parallel_degree", "sequence_parallel",
        "virtual_pipeline_model_parallel_size"}},
      {"replicas are the ranks divided by parallel.expert_parallel_size",
       {"dp", "dp_size", "data_parallel", "data_parallel_size", "data_parallel_degree", "dp_replicate",
        "data_parallel_replicate_degree", "data_parallel_shard_degree"}},
      {"gradients are accumulated over train.global_batch_size / (train.micro_batch_size * ranks) "
       "micro-batches",
       {"gradient_accumulation_steps", "gas", "grad_accum", "num_micro_batches", "num_microbatches",
        "accumulate_grad_batches"}},
      {"optimizer states are spread over the replicas by themselves",
       {"zero", "zero_stage", "stage", "zero_optimization", "fsdp", "use_distributed_optimizer",
        "optimizer_states"}},
      {"the optimizer is AdamW, the schedule linear warm-up and cosine decay",
       {"optim", "optimizer_type", "lr_scheduler", "lr_scheduler_type", "lr_decay_style", "scheduler"}},
      {"--resume continues a run", {"resume", "resume_from_checkpoint", "load", "load_checkpoint"}},
      {"experts drop no token",
       {"moe_expert_capacity_factor", "capacity_factor", "expert_capacity", "drop_tokens"}},
  };
  return kElsewhere;
}

/// "Optimizer.Learning-Rate" as "learning_rate"; "numLayers" as "num_layers".
std::string last_word(std::string_view name) {
  name = name.substr(name.rfind('.') + 1);
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::string word;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isupper(byte) != 0 && !word.empty() &&
        std::islower(static_cast<unsigned char>(word.back())) != 0) {
      word += '_';
    }
    word += c == '-' ? '_' : static_cast<char>(std::tolower(byte));
  }
  return word;
}

template <typename Row>
const Row* row_of(std::span<const Row> table, std::string_view word) {
  const auto found = std::ranges::find_if(
      table, [&](const Row& row) { return std::ranges::find(row.names, word) != row.names.end(); });
  return found == table.end() ? nullptr : &*found;
}

std::vector<std::string> keys_of(const KeyMeaning* meaning) {
  return meaning == nullptr ? std::vector<std::string>()
                            : std::vector<std::string>(meaning->keys.begin(), meaning->keys.end());
}

/// The other programs' name nearest to a word, where it is a slip of it and nearer than `limit`.
std::string nearest_meaning(const std::string& word, std::int64_t limit) {
  constexpr std::int64_t kSlip = 2;
  constexpr std::size_t kShort = 5;  // in short names a slip makes another name
  std::string nearest;
  std::int64_t best = std::min(limit, kSlip + 1);
  for (const KeyMeaning& meaning : key_meanings()) {
    for (const std::string_view name : meaning.names) {
      if (const std::int64_t distance = edit_distance(word, name); name.size() > kShort && distance < best) {
        nearest = name;
        best = distance;
      }
    }
  }
  return nearest;
}

}  // namespace

std::span<const KeyMeaning> key_meanings() {
  static const std::vector<KeyMeaning> kMeanings = {
      {{"name"},
       {"run_name", "experiment", "experiment_name", "wandb_exp_name", "job_name", "exp_name", "project"}},
      {{"seed"}, {"random_seed", "data_seed", "rng_seed", "manual_seed"}},
      {{"output_dir"},
       {"out_dir", "output", "output_path", "out", "save_dir", "run_dir", "log_dir", "logging_dir",
        "dump_folder", "results_dir", "work_dir", "checkpoint_dir", "save"}},
      {{"dtype"},
       {"bf16", "fp16", "fp32", "precision", "params_dtype", "torch_dtype", "mixed_precision", "data_type",
        "amp"}},
      {{"model.path"},
       {"model_name_or_path", "model_name", "model_path", "pretrained_model_name_or_path", "hf_model",
        "base_model", "pretrained_checkpoint", "hf_assets_path", "initial_load_path", "model_id"}},
      {{"model.load_weights"},
       {"from_pretrained", "pretrained", "load_pretrained", "finetune", "use_pretrained"}},
      {{"parallel.expert_parallel_size"},
       {"expert_model_parallel_size", "expert_parallel", "ep", "ep_size", "expert_parallel_degree",
        "moe_expert_parallel_size", "expert_tensor_parallel_size"}},
      {{"parallel.schedule"},
       {"overlap_moe_expert_parallel_comm", "two_batch_overlap", "enable_two_batch_overlap",
        "moe_fb_overlap"}},
      {{"parallel.ep_plan.dispatcher"},
       {"moe_token_dispatcher_type", "token_dispatcher", "moe_token_dispatcher", "all_to_all", "alltoall",
        "deepep", "moe_enable_deepep", "moe_flex_dispatcher_backend"}},
      {{"parallel.ep_plan.moe_num_chunks"},
       {"num_chunks", "chunks", "moe_chunks", "overlap_degree", "pipeline_degree", "a2a_ffn_overlap_degree"}},
      {{"parallel.ep_plan.moe_chunk_size"}, {"chunk_size"}},
      {{"parallel.ep_plan.chunk_moe_recompute"},
       {"recompute", "recompute_granularity", "recompute_modules", "gradient_checkpointing",
        "moe_layer_recompute", "activation_checkpointing", "activation_checkpoint",
        "checkpoint_activations"}},
      {{"moe.router_load_balancing_type"},
       {"moe_router_load_balancing_type", "load_balancing", "load_balancing_type", "load_balance_type",
        "moe_router_enable_expert_bias"}},
      {{"moe.aux_loss_coeff"},
       {"moe_aux_loss_coeff", "router_aux_loss_coef", "aux_loss", "aux_loss_coef", "aux_loss_alpha",
        "load_balance_loss_weight", "load_balancing_loss_coeff"}},
      {{"moe.z_loss_coeff"},
       {"moe_z_loss_coeff", "router_z_loss_coef", "z_loss", "z_loss_coef", "z_loss_weight"}},
      {{"moe.router_bias_update_rate"},
       {"moe_router_bias_update_rate", "bias_update_speed", "bias_update_rate"}},
      {{"data.path"},
       {"data_path", "dataset", "dataset_name", "dataset_path", "train_data_path", "train_file", "text",
        "corpus", "data_dir", "training_data", "train_data", "datasets", "texts"}},
      {{"data.extensions"}, {"extension", "suffixes", "file_types", "data_files"}},
      {{"data.tokenizer"},
       {"tokenizer_model", "tokenizer_name", "tokenizer_path", "tokenizer_type", "vocab_file", "tokenizer",
        "tokenizer_name_or_path"}},
      {{"data.validation_fraction"},
       {"split", "val_fraction", "validation_split", "validation_split_percentage", "test_size", "eval_split",
        "val_split", "valid_fraction"}},
      {{"data.seq_length"},
       {"seq_len", "seqlen", "sequence_length", "max_seq_length", "max_seq_len", "block_size",
        "context_length", "max_length", "cutoff_len", "sequence_len", "decoder_seq_length",
        "model_max_length", "n_ctx"}},
      {{"train.steps"},
       {"max_steps", "train_iters", "iterations", "num_steps", "total_steps", "training_steps", "train_steps",
        "iters", "max_iters", "num_iterations", "total_num_steps", "n_steps"}},
      // Passes over the text are not a key; steps are.
      {{"train.steps"}, {"epochs", "num_epochs", "num_train_epochs", "max_epochs", "epoch", "train_samples"}},
      {{"train.global_batch_size", "train.micro_batch_size"}, {"batch_size", "batch", "bs", "batchsize"}},
      {{"train.global_batch_size"},
       {"train_batch_size", "gbs", "total_batch_size", "effective_batch_size", "global_batch"}},
      {{"train.micro_batch_size"},
       {"per_device_train_batch_size", "train_micro_batch_size_per_gpu", "mbs", "micro_batch",
        "device_batch_size", "local_batch_size", "per_gpu_batch_size", "microbatch_size"}},
      {{"train.log_interval"},
       {"logging_steps", "log_freq", "log_every", "print_interval", "steps_per_print", "log_every_n_steps",
        "logging_interval"}},
      {{"train.eval_interval"},
       {"eval_steps", "eval_freq", "val_interval", "eval_every", "val_check_interval", "validation_interval",
        "evaluation_steps"}},
      {{"train.eval_sequences"},
       {"eval_iters", "max_eval_samples", "eval_batches", "limit_val_batches", "eval_samples",
        "val_samples"}},
      {{"train.max_minutes"},
       {"exit_duration_in_mins", "max_time", "time_limit", "max_hours", "walltime", "timeout"}},
      {{"optimizer.lr"},
       {"learning_rate", "lr", "peak_lr", "max_lr", "base_lr", "initial_lr", "learningrate", "step_size"}},
      {{"optimizer.min_lr"},
       {"min_learning_rate", "lr_min", "final_lr", "end_lr", "eta_min", "min_lr_rate", "min_lr_factor"}},
      {{"optimizer.warmup_steps"},
       {"warmup", "warmup_iters", "lr_warmup_iters", "lr_warmup_steps", "num_warmup_steps", "warmup_ratio",
        "lr_warmup_fraction", "warmup_num_steps", "warmup_steps"}},
      {{"optimizer.weight_decay"}, {"wd", "decay", "l2", "adam_weight_decay"}},
      {{"optimizer.beta1"}, {"adam_beta1", "beta_1", "b1"}},
      {{"optimizer.beta2"}, {"adam_beta2", "beta_2", "b2"}},
      {{"optimizer.beta1", "optimizer.beta2"}, {"betas", "adam_betas", "beta"}},
      {{"optimizer.eps"}, {"adam_eps", "adam_epsilon", "epsilon"}},
      {{"optimizer.clip_grad"},
       {"max_grad_norm", "gradient_clipping", "gradient_clip_val", "grad_clip", "max_norm", "clip_norm",
        "clip", "grad_norm_clip", "clip_gradient"}},
      {{"checkpoint.save_interval"},
       {"save_steps", "save_interval", "save_every", "checkpoint_interval", "save_freq", "ckpt_interval",
        "checkpoint_every", "checkpoint_steps", "every_n_train_steps"}},
      {{"checkpoint.keep"},
       {"save_total_limit", "keep_latest_k", "keep_last", "max_checkpoints", "save_top_k",
        "keep_checkpoints"}},
      {{"trace.first_step"}, {"profile_step_start", "profile_start", "trace_start", "wait"}},
      {{"trace.steps"},
       {"profile", "profiler", "profile_steps", "trace_steps", "enable_profiling", "profile_step_end"}},
      {{"runtime.collective_timeout_s"},
       {"ddp_timeout", "distributed_timeout_minutes", "distributed_timeout", "nccl_timeout",
        "collective_timeout", "comm_timeout", "timeout_s", "train_timeout_seconds"}},
      {{"runtime.threads_per_rank"},
       {"num_threads", "threads", "omp_num_threads", "cpus_per_task", "cores", "num_cpu_threads_per_process",
        "cores_per_rank"}},
      {{"model.config.model_type"}, {"model_type", "architecture"}},
      {{"model.config.hidden_size"},
       {"hidden_size", "d_model", "n_embd", "embedding_size", "dim", "hidden", "n_embed"}},
      {{"model.config.num_hidden_layers"},
       {"num_hidden_layers", "num_layers", "n_layers", "n_layer", "layers"}},
      {{"model.config.num_attention_heads"},
       {"num_attention_heads", "num_heads", "n_heads", "n_head", "heads"}},
      {{"model.config.num_key_value_heads"},
       {"num_key_value_heads", "num_query_groups", "num_kv_heads", "n_kv_heads", "kv_heads"}},
      {{"model.config.head_dim"}, {"head_dim", "kv_channels", "head_size", "d_head"}},
      {{"model.config.intermediate_size"},
       {"intermediate_size", "ffn_hidden_size", "d_ff", "ffn_dim", "inter_dim"}},
      {{"model.config.num_experts"}, {"num_experts", "n_experts", "experts", "num_moe_experts"}},
      {{"model.config.num_local_experts"}, {"num_local_experts"}},
      {{"model.config.n_routed_experts"}, {"n_routed_experts"}},
      {{"model.config.num_experts_per_tok"},
       {"num_experts_per_tok", "moe_router_topk", "topk", "top_k", "moe_top_k", "n_activated_experts",
        "moe_k", "num_experts_per_token", "experts_per_token"}},
      {{"model.config.moe_intermediate_size"},
       {"moe_intermediate_size", "moe_ffn_hidden_size", "expert_hidden_size", "moe_inter_dim",
        "expert_ffn_size"}},
      {{"model.config.max_position_embeddings"},
       {"max_position_embeddings", "max_position", "max_positions", "n_positions"}},
      {{"model.config.rope_theta"}, {"rope_theta", "rotary_base", "rotary_embedding_base", "rope_base"}},
      {{"model.config.rms_norm_eps"}, {"rms_norm_eps", "layernorm_epsilon", "norm_epsilon", "norm_eps"}},
      {{"model.config.vocab_size"},
       {"vocab_size", "padded_vocab_size", "n_vocab", "make_vocab_size_divisible_by", "vocabulary_size"}},
      {{"model.config.tie_word_embeddings"}, {"tie_word_embeddings", "untie_embeddings_and_output_weights"}},
      {{"model.config.norm_topk_prob"}, {"norm_topk_prob", "moe_router_pre_softmax"}},
  };
  return kMeanings;
}

std::vector<std::string> keys_meant_by(std::string_view name) {
  return keys_of(row_of(key_meanings(), last_word(name)));
}

std::string advice_for_key(std::string_view name, std::span<const std::string> known) {
  const std::string word = last_word(name);
  std::string nearest = nearest_name(name, known);
  const std::int64_t spelling =
      std::min(edit_distance(name, nearest), edit_distance(word, last_word(nearest)));
  const bool section = nearest.find('.') == std::string::npos && edit_distance(name, nearest) <= 2;
  if (spelling > 0 && !section) {
    if (const Elsewhere* other = row_of(elsewhere(), word)) {
      return std::string(other->advice);
    }
    std::vector<std::string> keys = keys_meant_by(word);
    if (keys.empty()) {
      keys = keys_meant_by(nearest_meaning(word, spelling));
    }
    if (!keys.empty()) {
      return fmt::format("what others call {} is {} here", word, join_choices(keys));
    }
  }
  return "the nearest known key is " + nearest;
}

}  // namespace expedite::train
