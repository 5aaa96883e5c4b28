// The vector instruction sets that kernels are compiled for. Included before Highway by every kernel file.
#pragma once

// AVX2 and AVX-512 (and NEON or SVE elsewhere), with plain scalar code for anything older: the SSE levels in
// between would double compile time for machines that nobody trains on.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
