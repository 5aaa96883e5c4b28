#include "expedite/kernels/cpu.h"

namespace expedite::kernels {
namespace {

bool has_avx512_bf16() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

}  // namespace

const bool kHasAvx512Bf16 = has_avx512_bf16();

}  // namespace expedite::kernels
