#include "expedite/architecture/buffer_bytes.h"

#include <initializer_list>
#include <span>

#include "expedite/base/error.h"
#include "expedite/tensor/memory_pool.h"

namespace expedite::architecture {
namespace {

constexpr std::int64_t kFloat = 4;  // bytes of a statistic, a score or a gate weight
constexpr std::int64_t kIndex = 4;  // of an expert's number

std::int64_t together(std::span<const std::int64_t> sizes, std::int64_t count) {
  constexpr std::int64_t kAlignment = MemoryPool::kAlignment;
  std::int64_t sum = 0;
  for (const std::int64_t bytes : sizes) {
    sum += (count * bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return sum;
}

std::int64_t together(std::initializer_list<std::int64_t> sizes, std::int64_t count) {
  return together(std::span(sizes.begin(), sizes.size()), count);
}

}  // namespace

BufferBytes::BufferBytes(const ModelConfig& config, DType dtype)
    : hidden_(config.hidden_size * size_of(dtype)),
      element_(size_of(dtype)),
      experts_(config.experts),
      topk_(config.experts_per_token),
      up_(config.mlp == MlpKind::plain ? 1 : 2),
      ffn_(config.intermediate_size * size_of(dtype)),
      moe_ffn_(config.moe_intermediate_size * size_of(dtype)),
      shared_ffn_(config.shared_expert_intermediate_size * size_of(dtype)),
      shared_gate_(config.shared_expert_gate) {
  const std::int64_t query = config.query_size() * element_;
  const std::int64_t key = config.kv_size() * element_;
  const std::int64_t value = config.value_size() * element_;
  const std::int64_t context = config.context_size() * element_;
  const std::int64_t log_sum_exp = config.heads * kFloat;
  const std::int64_t query_rank = config.q_lora_rank * element_;
  const std::int64_t rank = config.kv_lora_rank * element_;
  if (config.attention == AttentionKind::latent) {
    attention_ = {hidden_, kFloat, query_rank + rank, rank, kFloat, query, key, value, context, log_sum_exp};
    const std::int64_t compressed = config.compressed_size() * element_;
    const std::int64_t expanded = config.heads * (config.qk_nope_head_dim + config.value_dim) * element_;
    if (query_rank > 0) {
      attention_.insert(attention_.end(), {query_rank, kFloat});
      grad_attention_ = {query_rank + compressed, query, expanded};
    } else {
      grad_attention_ = {query + compressed, expanded};
    }
    return;
  }
  attention_ = {hidden_, kFloat, query + key + value, context, log_sum_exp};
  grad_attention_ = {query + key + value};
  if (config.qk_norm != QkNorm::none) {
    const bool whole = config.qk_norm == QkNorm::whole;
    attention_.insert(attention_.end(), {query + key, (whole ? 1 : config.heads) * kFloat,
                                         (whole ? 1 : config.kv_heads) * kFloat});
  }
}

std::int64_t BufferBytes::operator()(schedule::Role role, std::int64_t count) const {
  using schedule::Role;
  switch (role) {
    case Role::hidden:
    case Role::mid:
    case Role::grad_hidden:
    case Role::grad_mid:
    case Role::shared_output:
    case Role::combine_share:
    case Role::combine_send:
    case Role::combine_recv:
    case Role::grad_combine_send:
    case Role::grad_combine_recv:
    case Role::expert_output:
    case Role::grad_output:
    case Role::relay_back:
    case Role::grad_relay_out:
      return count * hidden_;
    case Role::attention:
      return together(attention_, count);
    case Role::grad_attention:
      return grad_attention_.size() == 1 ? count * grad_attention_.front() : together(grad_attention_, count);
    case Role::mlp:
      return together({hidden_, kFloat, up_ * ffn_, ffn_}, count);
    case Role::grad_mlp:
      return count * up_ * ffn_;
    case Role::router:
      return together({hidden_, kFloat, experts_ * kFloat, experts_ * kFloat, topk_ * kIndex, topk_ * kFloat},
                      count);
    case Role::grad_weights:
      return count * topk_ * kFloat;
    case Role::shared_experts:
      return together({up_ * shared_ffn_, shared_ffn_, shared_gate_ ? kFloat : 0}, count);
    case Role::grad_shared:
      return together({up_ * shared_ffn_, hidden_, shared_gate_ ? kFloat : 0}, count);
    case Role::dispatch_send:
    case Role::dispatch_recv:
    case Role::grad_dispatch_share:
    case Role::grad_dispatch_send:
    case Role::grad_dispatch_recv:
    case Role::grad_expert_input:
    case Role::relay_out:
    case Role::grad_relay_back:
      return together({hidden_, topk_ * kFloat}, count);
    case Role::expert_input:
      return together({hidden_, kFloat}, count);
    case Role::gate_up:
    case Role::grad_gate_up:
      return count * up_ * moe_ffn_;
    case Role::activated:
      return count * moe_ffn_;
    case Role::mtp:
      return count * 4 * hidden_;
    case Role::stage:
    case Role::stage_inputs:
      break;
  }
  fail("a buffer of role {} is not of one layer", name_of(role));
}

}  // namespace expedite::architecture
