#include "expedite/model/attention_layer.h"

#include "expedite/model/grouped_query_attention.h"
#include "expedite/model/latent_attention.h"

namespace expedite::model {
namespace {

bool is_latent(const ModelConfig& config) {
  return config.attention == architecture::AttentionKind::latent;
}

}  // namespace

void AttentionLayer::forward(ConstTensorView hidden, Buffer& kept, TensorView mid) const {
  Arena arena(kept);
  if (is_latent(config_)) {
    LatentActivations activations(arena, config_, batch_.size(), dtype_);
    latent_forward(config_, layer_, weights_, batch_, hidden, activations, mid, pool_);
  } else {
    AttentionActivations activations(arena, config_, batch_.size(), dtype_);
    grouped_query_forward(config_, layer_, weights_, batch_, hidden, activations, mid, pool_);
  }
}

void AttentionLayer::input_grad(ConstTensorView hidden, Buffer& kept, ConstTensorView grad_mid, Buffer& grads,
                                TensorView grad_hidden) const {
  const std::int64_t tokens = batch_.size();
  Arena arena(kept);
  if (is_latent(config_)) {
    const LatentActivations activations(arena, config_, tokens, dtype_);
    Arena grads_arena(grads);
    LatentGradients gradients(grads_arena, config_, tokens, dtype_);
    latent_input_grad(config_, layer_, weights_, batch_, hidden, activations, grad_mid, gradients,
                      grad_hidden, pool_);
  } else {
    const AttentionActivations activations(arena, config_, tokens, dtype_);
    grouped_query_input_grad(config_, layer_, weights_, batch_, hidden, activations, grad_mid,
                             grads.view(dtype_, {tokens, config_.qkv_size()}), grad_hidden, pool_);
  }
}

void AttentionLayer::weight_grad(Buffer& kept, ConstTensorView grad_mid, Buffer& grads) const {
  const std::int64_t tokens = batch_.size();
  Arena arena(kept);
  if (is_latent(config_)) {
    const LatentActivations activations(arena, config_, tokens, dtype_);
    Arena grads_arena(grads);
    const LatentGradients gradients(grads_arena, config_, tokens, dtype_);
    latent_weight_grad(config_, weights_, activations, grad_mid, gradients);
  } else {
    const AttentionActivations activations(arena, config_, tokens, dtype_);
    grouped_query_weight_grad(weights_, activations, grad_mid,
                              grads.view(dtype_, {tokens, config_.qkv_size()}));
  }
}

}  // namespace expedite::model
