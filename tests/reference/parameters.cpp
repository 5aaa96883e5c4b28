#include "tests/reference/parameters.h"

#include "expedite/base/random.h"
#include "expedite/hf/names.h"
#include "expedite/hf/safetensors_folder.h"

namespace expedite::reference {

Parameters load_parameters(const ModelConfig& config, const std::filesystem::path& folder) {
  const hf::SafetensorsFolder weights(folder);
  Parameters parameters;
  for (const hf::ParameterSpec& spec : hf::parameters(config)) {
    parameters[spec.name] = weights.file(spec.name).read_f64(spec.name);
  }
  return parameters;
}

Parameters random_parameters(const ModelConfig& config, std::uint64_t seed, double deviation) {
  Parameters parameters;
  for (const hf::ParameterSpec& spec : hf::parameters(config)) {
    const Philox random(seed, stream_of(spec.name));
    const bool is_norm = spec.name.ends_with("norm.weight");
    std::vector<double>& values = parameters[spec.name];
    for (std::int64_t i = 0; i < spec.elements(); ++i) {
      const double value = (is_norm ? 1.0 : 0.0) + deviation * random.normal(i);
      values.push_back(static_cast<float>(value));
    }
  }
  return parameters;
}

Gradients zero_gradients(const ModelConfig& config) {
  Gradients gradients;
  for (const hf::ParameterSpec& spec : hf::parameters(config)) {
    if (spec.trained) {
      gradients[spec.name].assign(spec.elements(), 0.0);
    }
  }
  return gradients;
}

}  // namespace expedite::reference
