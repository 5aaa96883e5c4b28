// A model's parameters and their gradients in double precision, by Hugging Face name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "expedite/architecture/model_config.h"

namespace expedite::reference {

using Parameters = std::map<std::string, std::vector<double>>;
using Gradients = std::map<std::string, std::vector<double>>;

/// Every parameter that the configuration names, from a Hugging Face folder.
[[nodiscard]] Parameters load_parameters(const ModelConfig& config, const std::filesystem::path& folder);

/// Matrices normal with deviation `deviation`, norm weights and the selection bias off their usual 1 and 0.
/// All values are exact in float32, so that a fast implementation can start from the same ones.
[[nodiscard]] Parameters random_parameters(const ModelConfig& config, std::uint64_t seed,
                                           double deviation = 0.3);

/// Zeros for every trained parameter.
[[nodiscard]] Gradients zero_gradients(const ModelConfig& config);

}  // namespace expedite::reference
