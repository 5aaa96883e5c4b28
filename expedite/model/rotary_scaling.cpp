#include "expedite/model/rotary_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>

namespace expedite::model {
namespace {

constexpr double kMinFactor = 1.0;
constexpr double kTiny = 1e-30;  // "more than nothing" as a lowest legal value

RotaryScaling scaling_of(const ConfigFields& fields) {
  // "type" is the older spelling of "rope_type".
  const std::string type = fields.text("rope_type", fields.text("type", ""));
  require(!fields.has("rope_type") || fields.text("type", type) == type,
          "{}: rope_type and type contradict each other", fields.where());
  require(!type.empty(), "{}: the field rope_type is missing", fields.where());
  if (type == "default") {
    return RotaryScaling::none;
  }
  if (type == "linear") {
    return RotaryScaling::linear;
  }
  if (type == "dynamic") {
    return RotaryScaling::dynamic;
  }
  if (type == "yarn") {
    return RotaryScaling::yarn;
  }
  if (type == "llama3") {
    return RotaryScaling::llama3;
  }
  fail("{}: rope_type \"{}\" is not built; default, linear, dynamic, yarn and llama3 are", fields.where(),
       type);
}

double yarn_magnitude(double scale, double multiplier) {
  return scale <= 1.0 ? 1.0 : 0.1 * multiplier * std::log(scale) + 1.0;
}

void parse_yarn(const ConfigFields& fields, RotarySettings& settings) {
  require(settings.theta > 1.0, "{}: yarn needs a rope_theta above 1, not {}", fields.where(),
          settings.theta);
  settings.original_positions = static_cast<double>(settings.max_positions);
  if (fields.has("original_max_position_embeddings")) {
    // The ratio of the lengths then takes the place of `factor`, in Hugging Face as here.
    settings.original_positions = static_cast<double>(fields.integer("original_max_position_embeddings", 1));
    settings.factor = static_cast<double>(settings.max_positions) / settings.original_positions;
  }
  const double mscale = fields.number("mscale", 0.0, 0.0);
  const double mscale_all = fields.number("mscale_all_dim", 0.0, 0.0);
  settings.attention_factor =
      mscale != 0.0 && mscale_all != 0.0
          ? yarn_magnitude(settings.factor, mscale) / yarn_magnitude(settings.factor, mscale_all)
          : yarn_magnitude(settings.factor, 1.0);
  settings.attention_factor = fields.number("attention_factor", settings.attention_factor, 0.0);
  // A zero means the default, as in Hugging Face.
  const auto beta = [&](const char* field, double default_value) {
    const double value = fields.number(field, default_value, 0.0);
    return value == 0.0 ? default_value : value;
  };
  settings.beta_fast = beta("beta_fast", settings.beta_fast);
  settings.beta_slow = beta("beta_slow", settings.beta_slow);
  require(settings.beta_fast >= settings.beta_slow, "{}: beta_fast {} is below beta_slow {}", fields.where(),
          settings.beta_fast, settings.beta_slow);
  require(fields.boolean("truncate", true), "{}: truncate = false is not built", fields.where());
}

void parse_llama3(const ConfigFields& fields, RotarySettings& settings) {
  settings.low_freq_factor = fields.required_number("low_freq_factor", kTiny);
  settings.high_freq_factor = fields.required_number("high_freq_factor", kTiny);
  require(settings.high_freq_factor > settings.low_freq_factor,
          "{}: high_freq_factor {} must be above low_freq_factor {}", fields.where(),
          settings.high_freq_factor, settings.low_freq_factor);
  require(fields.has("original_max_position_embeddings"),
          "{}: the field original_max_position_embeddings is missing", fields.where());
  settings.original_positions = static_cast<double>(fields.integer("original_max_position_embeddings", 1));
}

void parse_scaling(const ConfigFields& fields, RotarySettings& settings) {
  settings.scaling = scaling_of(fields);
  if (settings.scaling == RotaryScaling::none) {
    return;
  }
  settings.factor = fields.required_number("factor", kMinFactor);
  switch (settings.scaling) {
    case RotaryScaling::dynamic:
      require(settings.rotary_dim > 2,
              "{}: dynamic scaling needs a head_dim of which more than 2 elements turn", fields.where());
      break;
    case RotaryScaling::yarn:
      parse_yarn(fields, settings);
      break;
    case RotaryScaling::llama3:
      parse_llama3(fields, settings);
      break;
    default:
      break;
  }
}

// The newer spelling holds theta and scaling in one object; older readers ignore it, so an older spelling
// beside it must agree.
void parse_rope_parameters(const ConfigFields& config, RotarySettings& settings) {
  const ConfigFields fields(*config.find("rope_parameters"), config.where() + ": rope_parameters");
  const double theta = fields.number("rope_theta", settings.theta, kTiny);
  require(!config.has("rope_scaling"), "{}: rope_scaling and rope_parameters are both given; remove one",
          config.where());
  require(!config.has("rope_theta") || !fields.has("rope_theta") || theta == settings.theta,
          "{}: rope_theta is {} and rope_parameters.rope_theta {}; remove one", config.where(),
          settings.theta, theta);
  settings.theta = theta;
  const double factor = fields.number("factor", 1.0, kMinFactor);
  parse_scaling(fields, settings);
  require(settings.scaling == RotaryScaling::none || settings.factor == factor,
          "{}: factor {} and the ratio of max_position_embeddings to original_max_position_embeddings, {}, "
          "contradict each other",
          fields.where(), factor, settings.factor);
}

std::vector<float> unscaled(double theta, std::int64_t rotary_dim) {
  std::vector<float> result(rotary_dim / 2);
  for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    result[i] = 1.0F / std::pow(static_cast<float>(theta), exponent);
  }
  return result;
}

// The pair of a head that turns `rotations` times over the original length.
double yarn_pair(double rotations, const RotarySettings& settings) {
  return static_cast<double>(settings.rotary_dim) *
         std::log(settings.original_positions / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(settings.theta));
}

void scale_yarn(const RotarySettings& settings, std::vector<float>& frequencies) {
  const double low = std::max(std::floor(yarn_pair(settings.beta_fast, settings)), 0.0);
  double high = std::min(std::ceil(yarn_pair(settings.beta_slow, settings)),
                         static_cast<double>(settings.rotary_dim - 1));
  if (low == high) {
    high += 0.001;  // as in Hugging Face: a step instead of a division by zero
  }
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float position = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float keep = 1.0F - std::clamp(position, 0.0F, 1.0F);
    const float wavelength = 1.0F / frequencies[i];
    const float interpolated = 1.0F / (static_cast<float>(settings.factor) * wavelength);
    frequencies[i] = interpolated * (1.0F - keep) + frequencies[i] * keep;
  }
}

void scale_llama3(const RotarySettings& settings, std::vector<float>& frequencies) {
  const auto factor = static_cast<float>(settings.factor);
  const auto original = static_cast<float>(settings.original_positions);
  const auto low = static_cast<float>(settings.low_freq_factor);
  const auto high = static_cast<float>(settings.high_freq_factor);
  for (float& frequency : frequencies) {
    const float wavelength = 2.0F * std::numbers::pi_v<float> / frequency;
    if (wavelength > original / low) {
      frequency /= factor;
    } else if (wavelength >= original / high) {
      const float smooth = (original / wavelength - low) / (high - low);
      frequency = (1.0F - smooth) * frequency / factor + smooth * frequency;
    }
  }
}

double dynamic_theta(const RotarySettings& settings, std::int64_t length) {
  const auto dim = static_cast<double>(settings.rotary_dim);
  const auto limit = static_cast<double>(settings.max_positions);
  const double stretch = settings.factor * static_cast<double>(length) / limit - (settings.factor - 1.0);
  return settings.theta * std::pow(stretch, dim / (dim - 2.0));
}

}  // namespace

double partial_rotary_factor(const ConfigFields& config, double default_value) {
  constexpr const char* kField = "partial_rotary_factor";
  std::optional<double> factor = config.optional_number(kField, kTiny);
  if (const nlohmann::json* parameters = config.find("rope_parameters"); parameters != nullptr) {
    const ConfigFields fields(*parameters, config.where() + ": rope_parameters");
    const std::optional<double> newer = fields.optional_number(kField, kTiny);
    require(!factor || !newer || *factor == *newer,
            "{}: partial_rotary_factor is {} and rope_parameters.partial_rotary_factor {}; remove one",
            config.where(), factor.value_or(0.0), newer.value_or(0.0));
    factor = newer ? newer : factor;
  }
  require(factor.value_or(default_value) <= 1.0, "{}: partial_rotary_factor {} is more than 1",
          config.where(), factor.value_or(default_value));
  return factor.value_or(default_value);
}

RotarySettings parse_rotary_settings(const ConfigFields& config, std::int64_t rotary_dim,
                                     std::int64_t max_positions, double default_theta) {
  RotarySettings settings;
  settings.rotary_dim = rotary_dim;
  settings.max_positions = max_positions;
  settings.theta = config.number("rope_theta", default_theta, kTiny);
  if (config.has("rope_parameters")) {
    parse_rope_parameters(config, settings);
  } else if (config.has("rope_scaling")) {
    parse_scaling(ConfigFields(*config.find("rope_scaling"), config.where() + ": rope_scaling"), settings);
  }
  return settings;
}

std::vector<float> inverse_frequencies(const RotarySettings& settings, std::int64_t length) {
  if (settings.scaling == RotaryScaling::dynamic && length > settings.max_positions) {
    return unscaled(dynamic_theta(settings, length), settings.rotary_dim);
  }
  std::vector<float> frequencies = unscaled(settings.theta, settings.rotary_dim);
  switch (settings.scaling) {
    case RotaryScaling::linear:
      for (float& frequency : frequencies) {
        frequency /= static_cast<float>(settings.factor);
      }
      break;
    case RotaryScaling::yarn:
      scale_yarn(settings, frequencies);
      break;
    case RotaryScaling::llama3:
      scale_llama3(settings, frequencies);
      break;
    default:
      break;
  }
  return frequencies;
}

}  // namespace expedite::model
