// Which of the CPU's instructions the kernels use.
#pragma once

#include <string>

namespace expedite::cli {

/// "Highway AVX3_ZEN4, oneDNN avx512_core_bf16; bf16 dot product yes, AMX no; " and how bf16 products are
/// computed.
[[nodiscard]] std::string cpu_path();

}  // namespace expedite::cli
