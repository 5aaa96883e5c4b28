// The kernels that `expedite bench kernels` measures: any that a line names, and the list of those that it
// measures by itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/kernel_case.h"

namespace expedite::bench {

/// "grouped_matmul bf16 8192x1024x1024 E=8 skewed": kernel, direction, type, sizes, options (case_grammar.h).
/// Throws Error that names the word that does not fit, what is legal there, and an example.
[[nodiscard]] KernelCase kernel_case(std::string_view line);

/// Every kernel with its grammar and an example.
[[nodiscard]] std::string case_help();

[[nodiscard]] std::vector<KernelCase> kernel_cases();

}  // namespace expedite::bench
