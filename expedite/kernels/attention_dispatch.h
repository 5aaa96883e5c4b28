// The entries into attention's vector code, which pick the CPU's best at run time, and how they run units.
#pragma once

#include "expedite/kernels/attention_internal.h"

namespace expedite::kernels::attention {

void dispatch_forward(const ForwardArguments& arguments, Arithmetic arithmetic, MemoryPool& pool);
void dispatch_backward(const BackwardArguments& arguments, Arithmetic arithmetic, MemoryPool& pool);
/// Whether the vector code that runs here was compiled with bf16 dot products.
[[nodiscard]] bool compiled_with_bf16_dot();

/// Runs `Kernel`, made for a unit's thread from (arguments, longest sequence, scratch), for every unit.
template <typename Kernel, typename Arguments>
void run_units(const Arguments& arguments, MemoryPool& pool) {
  const std::int64_t longest = longest_sequence(arguments.bounds);
  const std::int64_t scratch_bytes = Kernel(arguments, longest, nullptr).scratch_bytes();
  for_each_unit(arguments.bounds, arguments.options.kv_heads, scratch_bytes, pool,
                [&](const Unit& unit, std::byte* scratch) { Kernel(arguments, longest, scratch).run(unit); });
}

}  // namespace expedite::kernels::attention
