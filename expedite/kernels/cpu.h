// What this CPU can do beyond the instruction sets that Highway tells apart.
#pragma once

namespace expedite::kernels {

/// AVX-512 BF16: products of bf16 pairs summed in fp32, and fp32 rounded to bf16.
extern const bool kHasAvx512Bf16;

}  // namespace expedite::kernels
