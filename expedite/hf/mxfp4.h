// Weights of experts that a checkpoint holds in MXFP4 (OCP Microscaling Formats 1.0, 2023): blocks of 32
// numbers of 4 bits, E2M1, with a power of two for each block. As gpt_oss's checkpoints lay them out.
#pragma once

#include <span>
#include <string>

#include "expedite/hf/safetensors_folder.h"
#include "expedite/tensor/view.h"

namespace expedite::hf {

/// Behind the name of the tensor: u8 [E, N, K / 32, 16], two numbers a byte, the lower half first, and u8
/// [E, N, K / 32], exponents with a bias of 127. The tensor itself is [E, K, N].
inline constexpr const char* kMxfp4Blocks = "_blocks";
inline constexpr const char* kMxfp4Scales = "_scales";

/// The folder holds `name` in this form.
[[nodiscard]] bool holds_mxfp4(const SafetensorsFolder& folder, const std::string& name);

/// Throws Error where blocks or scales are not those of a tensor of `shape` [E, K, N].
void check_mxfp4(const SafetensorsFolder& folder, const std::string& name, const Shape& shape);

/// values: [K, N], of one expert.
void read_mxfp4(const SafetensorsFolder& folder, const std::string& name, std::int64_t expert,
                const Shape& shape, std::span<float> values);

}  // namespace expedite::hf
