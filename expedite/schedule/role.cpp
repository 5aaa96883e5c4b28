#include "expedite/schedule/role.h"

namespace expedite::schedule {

std::string_view name_of(Role role) {
  switch (role) {
    case Role::hidden:
      return "hidden";
    case Role::attention:
      return "attention";
    case Role::mid:
      return "mid";
    case Role::mlp:
      return "mlp";
    case Role::router:
      return "router";
    case Role::shared_experts:
      return "shared_experts";
    case Role::shared_output:
      return "shared_output";
    case Role::dispatch_send:
      return "dispatch_send";
    case Role::dispatch_recv:
      return "dispatch_recv";
    case Role::expert_input:
      return "expert_input";
    case Role::gate_up:
      return "gate_up";
    case Role::activated:
      return "activated";
    case Role::expert_output:
      return "expert_output";
    case Role::combine_share:
      return "combine_share";
    case Role::combine_send:
      return "combine_send";
    case Role::combine_recv:
      return "combine_recv";
    case Role::grad_hidden:
      return "grad_hidden";
    case Role::grad_mid:
      return "grad_mid";
    case Role::grad_attention:
      return "grad_attention";
    case Role::grad_mlp:
      return "grad_mlp";
    case Role::grad_shared:
      return "grad_shared";
    case Role::grad_weights:
      return "grad_weights";
    case Role::grad_combine_send:
      return "grad_combine_send";
    case Role::grad_combine_recv:
      return "grad_combine_recv";
    case Role::grad_output:
      return "grad_output";
    case Role::grad_gate_up:
      return "grad_gate_up";
    case Role::grad_expert_input:
      return "grad_expert_input";
    case Role::grad_dispatch_share:
      return "grad_dispatch_share";
    case Role::grad_dispatch_send:
      return "grad_dispatch_send";
    case Role::grad_dispatch_recv:
      return "grad_dispatch_recv";
    case Role::relay_out:
      return "relay_out";
    case Role::relay_back:
      return "relay_back";
    case Role::grad_relay_out:
      return "grad_relay_out";
    case Role::grad_relay_back:
      return "grad_relay_back";
    case Role::mtp:
      return "mtp";
    case Role::stage:
      return "stage";
    case Role::stage_inputs:
      return "stage_inputs";
  }
  return "?";
}

MemoryCategory category_of(Role role) {
  switch (role) {
    case Role::dispatch_send:
    case Role::dispatch_recv:
    case Role::combine_share:
    case Role::combine_send:
    case Role::combine_recv:
    case Role::grad_combine_send:
    case Role::grad_combine_recv:
    case Role::grad_dispatch_share:
    case Role::grad_dispatch_send:
    case Role::grad_dispatch_recv:
    case Role::relay_out:
    case Role::relay_back:
    case Role::grad_relay_out:
    case Role::grad_relay_back:
      return MemoryCategory::communication;
    case Role::expert_input:
    case Role::gate_up:
    case Role::activated:
    case Role::expert_output:
    case Role::grad_output:
    case Role::grad_gate_up:
    case Role::grad_expert_input:
      return MemoryCategory::expert_activations;
    default:
      return MemoryCategory::activations;
  }
}

bool holds_rows(Role role) {
  return category_of(role) != MemoryCategory::activations;
}

}  // namespace expedite::schedule
