#include "expedite/architecture/rotary_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "expedite/base/near_fields.h"
#include "expedite/base/text.h"

namespace expedite::architecture {
namespace {

constexpr double kMinFactor = 1.0;
constexpr double kTiny = 1e-30;  // "more than nothing" as a lowest legal value
constexpr const char* kOriginal = "original_max_position_embeddings";

struct Kind {
  std::string_view name;
  RotaryScaling scaling;
  std::vector<std::string> fields;  // besides those of every kind
};

const std::vector<std::string>& fields_of_every_kind() {
  static const std::vector<std::string> kFields = {"rope_type", "type", "rope_theta",
                                                   "partial_rotary_factor"};
  return kFields;
}

const std::array<Kind, 6>& kinds() {
  static const std::array<Kind, 6> kKinds = {{
      {"default", RotaryScaling::none, {}},
      {"linear", RotaryScaling::linear, {"factor"}},
      {"dynamic", RotaryScaling::dynamic, {"factor"}},
      {"yarn",
       RotaryScaling::yarn,
       {"factor", kOriginal, "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
        "truncate"}},
      {"llama3", RotaryScaling::llama3, {"factor", kOriginal, "low_freq_factor", "high_freq_factor"}},
      {"longrope",
       RotaryScaling::longrope,
       {"factor", kOriginal, "attention_factor", "short_factor", "long_factor"}},
  }};
  return kKinds;
}

std::vector<std::string> all_fields() {
  std::vector<std::string> names = fields_of_every_kind();
  for (const Kind& kind : kinds()) {
    names.insert(names.end(), kind.fields.begin(), kind.fields.end());
  }
  return names;
}

const Kind& kind_of(const ConfigFields& fields, bool may_be_unnamed) {
  // "type" is the older spelling of "rope_type".
  std::string type = fields.text("rope_type", fields.text("type", ""));
  require(!fields.has("rope_type") || fields.text("type", type) == type,
          "{}: rope_type and type contradict each other", fields.where());
  if (type.empty() && may_be_unnamed) {
    type = "default";
  }
  require(!type.empty(), "{}: the field rope_type is missing", fields.where());
  const auto* found = std::ranges::find(kinds(), type, &Kind::name);
  require(found != kinds().end(),
          "{}: rope_type \"{}\" is not built; default, linear, dynamic, yarn, llama3 and longrope are",
          fields.where(), type);
  return *found;
}

/// Fields that are slips are errors: the one that was meant would stay at its default. Others that the kind
/// does not read are told of, as transformers does.
void check_fields(const nlohmann::json& map, const ConfigFields& fields, const Kind& kind,
                  std::vector<std::string>& notes) {
  static const std::vector<std::string> kAll = all_fields();
  std::vector<std::string> unread;
  for (const auto& [name, value] : map.items()) {
    const auto among = [&](const std::vector<std::string>& names) {
      return std::ranges::find(names, name) != names.end();
    };
    if (among(fields_of_every_kind()) || among(kind.fields)) {
      continue;
    }
    const std::string meant = among(kAll) ? std::string() : slip_of(name, kAll);
    require(meant.empty(), "{}: unknown field {}; is {} meant?", fields.where(), name, meant);
    unread.push_back(name);
  }
  if (!unread.empty()) {
    notes.push_back(fmt::format("{}: rope_type \"{}\" does not read {}, which has no effect", fields.where(),
                                kind.name, join_choices(unread)));
  }
}

/// original_max_position_embeddings, in the map or, as some files have it, beside it.
std::optional<double> original_positions(const ConfigFields& config, const ConfigFields& fields) {
  const std::optional<std::int64_t> inside = fields.optional_integer(kOriginal, 1);
  const std::optional<std::int64_t> beside = config.optional_integer(kOriginal, 1);
  require(!inside || !beside || *inside == *beside, "{}: {} is {}, and {} beside it; remove one",
          fields.where(), kOriginal, inside.value_or(0), beside.value_or(0));
  if (!inside && !beside) {
    return std::nullopt;
  }
  return static_cast<double>(inside ? *inside : *beside);
}

void parse_yarn(const ConfigFields& config, const ConfigFields& fields, RotarySettings& settings) {
  require(settings.theta > 1.0, "{}: yarn needs a rope_theta above 1, not {}", fields.where(),
          settings.theta);
  const auto positions = static_cast<double>(settings.max_positions);
  const std::optional<double> original = original_positions(config, fields);
  const std::optional<double> factor = fields.optional_number("factor", kMinFactor);
  require(factor || original, "{}: the field factor is missing, and {} to work it out from", fields.where(),
          kOriginal);
  settings.original_positions = original.value_or(positions);
  const double ratio = positions / settings.original_positions;
  settings.factor = factor.value_or(ratio);
  require(settings.factor >= kMinFactor, "{}: {} {} is above max_position_embeddings {}", fields.where(),
          kOriginal, settings.original_positions, positions);
  if (factor && original && config.has("max_position_embeddings") && *factor != ratio) {
    settings.notes.push_back(fmt::format(
        "{}: factor {} is taken, which contradicts max_position_embeddings {} over {} {} = {:.6g}",
        fields.where(), *factor, positions, kOriginal, settings.original_positions, ratio));
  }
  const double mscale = fields.number("mscale", 0.0, 0.0);
  const double mscale_all = fields.number("mscale_all_dim", 0.0, 0.0);
  settings.mscale_all_dim = mscale_all;
  settings.attention_factor =
      mscale != 0.0 && mscale_all != 0.0
          ? yarn_mscale(settings.factor, mscale) / yarn_mscale(settings.factor, mscale_all)
          : yarn_mscale(settings.factor, 1.0);
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
  settings.truncate = fields.boolean("truncate", true);
}

void parse_llama3(const ConfigFields& config, const ConfigFields& fields, RotarySettings& settings) {
  settings.factor = fields.required_number("factor", kMinFactor);
  settings.low_freq_factor = fields.required_number("low_freq_factor", kTiny);
  settings.high_freq_factor = fields.required_number("high_freq_factor", kTiny);
  require(settings.high_freq_factor > settings.low_freq_factor,
          "{}: high_freq_factor {} must be above low_freq_factor {}", fields.where(),
          settings.high_freq_factor, settings.low_freq_factor);
  const std::optional<double> original = original_positions(config, fields);
  require(original.has_value(), "{}: the field {} is missing", fields.where(), kOriginal);
  settings.original_positions = *original;
}

std::vector<double> parse_factors(const ConfigFields& fields, const char* field, std::int64_t pairs) {
  const nlohmann::json* list = fields.find(field);
  require(list != nullptr, "{}: the field {} is missing", fields.where(), field);
  const bool legal = list->is_array() && std::ssize(*list) == pairs &&
                     std::ranges::all_of(*list, [](const nlohmann::json& factor) {
                       return factor.is_number() && factor.get<double>() >= kTiny;
                     });
  require(legal, "{}: {} must list {} positive numbers, one for each pair of a head that turns",
          fields.where(), field, pairs);
  return list->get<std::vector<double>>();
}

void parse_longrope(const ConfigFields& config, const ConfigFields& fields, RotarySettings& settings) {
  settings.short_factor = parse_factors(fields, "short_factor", settings.rotary_dim / 2);
  settings.long_factor = parse_factors(fields, "long_factor", settings.rotary_dim / 2);
  const auto positions = static_cast<double>(settings.max_positions);
  const std::optional<double> original = original_positions(config, fields);
  const std::optional<double> factor = fields.optional_number("factor", kTiny);
  settings.original_positions = original.value_or(positions);
  // Beside the map, the original length decides the factor; in it, a factor that is given does.
  const double ratio = positions / settings.original_positions;
  settings.factor = config.has(kOriginal) ? ratio : factor.value_or(ratio);
  const double scale =
      settings.factor <= 1.0
          ? 1.0
          : std::sqrt(1.0 + std::log(settings.factor) / std::log(settings.original_positions));
  settings.attention_factor = fields.number("attention_factor", scale, 0.0);
}

void parse_scaling(const ConfigFields& config, const ConfigFields& fields, const Kind& kind,
                   RotarySettings& settings) {
  settings.scaling = kind.scaling;
  switch (kind.scaling) {
    case RotaryScaling::none:
      break;
    case RotaryScaling::linear:
      settings.factor = fields.required_number("factor", kMinFactor);
      break;
    case RotaryScaling::dynamic:
      settings.factor = fields.required_number("factor", kMinFactor);
      require(settings.rotary_dim > 2,
              "{}: dynamic scaling needs a head_dim of which more than 2 elements turn", fields.where());
      break;
    case RotaryScaling::yarn:
      parse_yarn(config, fields, settings);
      break;
    case RotaryScaling::llama3:
      parse_llama3(config, fields, settings);
      break;
    case RotaryScaling::longrope:
      parse_longrope(config, fields, settings);
      break;
  }
}

/// The map of the file's spelling; null when there is none.
const nlohmann::json* rope_map(const ConfigFields& config, const char*& spelling) {
  const nlohmann::json* newer = config.find("rope_parameters");
  const nlohmann::json* older = config.find("rope_scaling");
  require(newer == nullptr || older == nullptr,
          "{}: rope_scaling and rope_parameters are both given; remove one", config.where());
  spelling = newer != nullptr ? "rope_parameters" : "rope_scaling";
  return newer != nullptr ? newer : older;
}

}  // namespace

double yarn_mscale(double factor, double m) {
  return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

double partial_rotary_factor(const ConfigFields& config, double default_value) {
  constexpr const char* kField = "partial_rotary_factor";
  std::optional<double> factor = config.optional_number(kField, kTiny);
  const char* spelling = nullptr;
  if (const nlohmann::json* map = rope_map(config, spelling); map != nullptr) {
    const ConfigFields fields(*map, config.where() + ": " + spelling);
    const std::optional<double> newer = fields.optional_number(kField, kTiny);
    require(!factor || !newer || *factor == *newer,
            "{}: partial_rotary_factor is {} and {}.partial_rotary_factor {}; remove one", config.where(),
            factor.value_or(0.0), spelling, newer.value_or(0.0));
    factor = newer ? newer : factor;
  }
  require(factor.value_or(default_value) <= 1.0, "{}: partial_rotary_factor {} is more than 1",
          config.where(), factor.value_or(default_value));
  return factor.value_or(default_value);
}

bool reads_rotary_scaling(const ConfigFields& config) {
  const char* spelling = nullptr;
  const nlohmann::json* map = rope_map(config, spelling);
  if (map == nullptr || !map->is_object()) {
    return true;
  }
  const ConfigFields fields(*map, config.where() + ": " + spelling);
  const std::string type = fields.text("rope_type", fields.text("type", ""));
  return type.empty() || std::ranges::find(kinds(), type, &Kind::name) != kinds().end();
}

RotarySettings parse_rotary_settings(const ConfigFields& config, std::int64_t rotary_dim,
                                     std::int64_t max_positions, double default_theta) {
  RotarySettings settings;
  settings.rotary_dim = rotary_dim;
  settings.max_positions = max_positions;
  settings.theta = config.number("rope_theta", default_theta, kTiny);
  const char* spelling = nullptr;
  const nlohmann::json* map = rope_map(config, spelling);
  if (map == nullptr) {
    return settings;
  }
  const ConfigFields fields(*map, config.where() + ": " + spelling);
  const double theta = fields.number("rope_theta", settings.theta, kTiny);
  require(!config.has("rope_theta") || !fields.has("rope_theta") || theta == settings.theta,
          "{}: rope_theta is {} and {}.rope_theta {}; remove one", config.where(), settings.theta, spelling,
          theta);
  settings.theta = theta;
  // A map that holds no more than theta, as newer files have it, is of the default kind.
  const bool may_be_unnamed = fields.has("rope_theta") && !fields.has("factor");
  const Kind& kind = kind_of(fields, may_be_unnamed);
  check_fields(*map, fields, kind, settings.notes);
  parse_scaling(config, fields, kind, settings);
  return settings;
}

}  // namespace expedite::architecture
