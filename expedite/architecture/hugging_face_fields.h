// Names that fields of a Hugging Face config.json have, whoever reads them.
#pragma once

#include <string>
#include <vector>

namespace expedite::architecture {

/// Fields that some model types have and others do not: where a reader has no use for one of them, it is
/// still no slip of another.
[[nodiscard]] inline const std::vector<std::string>& hugging_face_fields() {
  static const std::vector<std::string> kNames = {"attention_bias",
                                                  "attention_dropout",
                                                  "decoder_sparse_step",
                                                  "experts_per_token",
                                                  "first_k_dense_replace",
                                                  "head_dim",
                                                  "hidden_act",
                                                  "hidden_size",
                                                  "initializer_range",
                                                  "intermediate_size",
                                                  "kv_lora_rank",
                                                  "layer_types",
                                                  "max_position_embeddings",
                                                  "max_window_layers",
                                                  "mlp_bias",
                                                  "mlp_only_layers",
                                                  "model_type",
                                                  "moe_intermediate_size",
                                                  "moe_layer_freq",
                                                  "moe_router_enable_expert_bias",
                                                  "n_group",
                                                  "n_routed_experts",
                                                  "n_shared_experts",
                                                  "norm_topk_prob",
                                                  "num_attention_heads",
                                                  "num_experts",
                                                  "num_experts_per_tok",
                                                  "num_hidden_layers",
                                                  "num_key_value_heads",
                                                  "num_local_experts",
                                                  "num_nextn_predict_layers",
                                                  "num_shared_experts",
                                                  "original_max_position_embeddings",
                                                  "partial_rotary_factor",
                                                  "q_lora_rank",
                                                  "qk_head_dim",
                                                  "qk_nope_head_dim",
                                                  "qk_rope_head_dim",
                                                  "qkv_bias",
                                                  "rms_norm_eps",
                                                  "rope_parameters",
                                                  "rope_scaling",
                                                  "rope_theta",
                                                  "routed_scaling_factor",
                                                  "router_aux_loss_coef",
                                                  "router_jitter_noise",
                                                  "scoring_func",
                                                  "shared_expert_intermediate_size",
                                                  "sliding_window",
                                                  "tie_word_embeddings",
                                                  "topk_group",
                                                  "topk_method",
                                                  "use_qk_norm",
                                                  "use_sliding_window",
                                                  "v_head_dim",
                                                  "vocab_size",
                                                  "clip_qkv"};
  return kNames;
}

}  // namespace expedite::architecture
