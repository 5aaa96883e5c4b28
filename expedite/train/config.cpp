#include "expedite/train/config.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <type_traits>

#include "expedite/base/error.h"
#include "expedite/base/installation.h"
#include "expedite/base/text.h"
#include "expedite/base/yaml.h"
#include "expedite/train/config_schema.h"
#include "expedite/train/key_meanings.h"

namespace expedite::train {
namespace {

const Field* find_field(std::string_view key) {
  for (const Field& field : schema()) {
    if (field.key == key) {
      return &field;
    }
  }
  return nullptr;
}

bool is_section(std::string_view key) {
  for (const Field& field : schema()) {
    if (field.key.size() > key.size() && field.key.starts_with(key) && field.key[key.size()] == '.') {
      return true;
    }
  }
  return false;
}

/// The field whose free-form map holds `key`, as model.config does model.config.hidden_size.
const Field* find_map_around(std::string_view key) {
  for (auto dot = key.rfind('.'); dot != std::string_view::npos && dot > 0; dot = key.rfind('.', dot - 1)) {
    const Field* field = find_field(key.substr(0, dot));
    TrainConfig config;
    if (field != nullptr && std::holds_alternative<nlohmann::json*>(field->slot(config))) {
      return field;
    }
  }
  return nullptr;
}

[[noreturn]] void fail_unknown(std::string_view key, const std::string& where) {
  std::vector<std::string> names;
  std::set<std::string_view> sections;
  for (const Field& field : schema()) {
    names.emplace_back(field.key);
    for (auto dot = field.key.find('.'); dot != std::string_view::npos; dot = field.key.find('.', dot + 1)) {
      if (sections.insert(field.key.substr(0, dot)).second) {
        names.emplace_back(field.key.substr(0, dot));
      }
    }
  }
  fail("{}: unknown key {}; {}", where, key, advice_for_key(key, names));
}

/// Puts checked values into a TrainConfig.
class Assigner {
 public:
  Assigner(TrainConfig& config, YamlSource source) : config_(config), source_(std::move(source)) {}

  /// The entries of a map of the section `prefix` ("" or "train.").
  void section(const YAML::Node& map, const std::string& prefix) {
    std::set<std::string> seen;
    for (const auto& item : map) {
      const YAML::Node& key = item.first;
      require(key.IsScalar(), "{}: a key must be a name", source_.at(key));
      const std::string name = prefix + key.Scalar();
      require(seen.insert(name).second, "{}: the key {} is there twice; keep one", source_.at(key), name);
      require(
          key.Scalar().find('.') == std::string::npos || (find_field(name) == nullptr && !is_section(name)),
          "{}: the key {} has dots: put it inside its section, one level of indentation per dot",
          source_.at(key), key.Scalar());
      entry(name, item.second, source_.at(key));
    }
  }

  /// The value of the field or section `key`, or of a key inside a free-form map.
  void entry(const std::string& key, const YAML::Node& value, const std::string& where) {
    if (const Field* field = find_field(key)) {
      assign(*field, value, where);
    } else if (is_section(key)) {
      if (!value.IsMap() && !value.IsNull()) {
        fail("{}: {} = {}: expected a map of its keys", where, key, shown(value));
      }
      section(value, key + ".");
    } else if (const Field* map = find_map_around(key)) {
      assign_inside(*map, key, value, where);
    } else {
      fail_unknown(key, where);
    }
  }

 private:
  /// Null where it is none, as .nan and .inf are.
  [[nodiscard]] nlohmann::json number_of(const YAML::Node& value) const {
    try {
      return to_json(value, source_);
    } catch (const Error&) {
      return {};
    }
  }

  [[nodiscard]] std::string shown(const YAML::Node& value) const {
    return value.IsScalar() ? value.Scalar() : to_json(value, source_).dump();
  }

  void assign(const Field& field, const YAML::Node& value, const std::string& where) {
    if (!std::visit([&](auto* slot) { return read(field, value, *slot); }, field.slot(config_))) {
      fail("{}: {} = {}: expected {}", where, field.key, shown(value), legal_values(field));
    }
  }

  void assign_inside(const Field& map, const std::string& key, const YAML::Node& value,
                     const std::string& where) {
    auto* object = std::get<nlohmann::json*>(map.slot(config_));
    std::string_view rest = std::string_view(key).substr(map.key.size() + 1);
    while (true) {
      const auto dot = rest.find('.');
      const std::string part(rest.substr(0, dot));
      require(!part.empty(), "{}: {} has an empty part", where, key);
      auto& child = (*object)[part];
      if (dot == std::string_view::npos) {
        child = to_json(value, source_);
        return;
      }
      require(child.is_null() || child.is_object(), "{}: {}: {} is {}, not a map", where, key, part,
              child.dump());
      object = &child;
      rest.remove_prefix(dot + 1);
    }
  }

  bool read(const Field&, const YAML::Node& value, bool& slot) {
    const auto json = to_json(value, source_);
    slot = json.is_boolean() && json.get<bool>();
    return json.is_boolean();
  }

  bool read(const Field& field, const YAML::Node& value, std::int64_t& slot) {
    const auto json = number_of(value);
    if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX)) {
      return false;
    }
    slot = json.get<std::int64_t>();
    return field.range.holds(static_cast<double>(slot));
  }

  bool read(const Field& field, const YAML::Node& value, ChunkCount& slot) {
    slot = {};
    slot.automatic = value.IsScalar() && value.Scalar() == kAutomatic;
    return slot.automatic || read(field, value, slot.chunks);
  }

  bool read(const Field& field, const YAML::Node& value, double& slot) {
    const auto json = number_of(value);
    if (!json.is_number()) {
      return false;
    }
    slot = json.get<double>();
    return field.range.holds(slot);
  }

  bool read(const Field&, const YAML::Node& value, std::string& slot) {
    if (!value.IsScalar()) {
      return false;
    }
    slot = value.Scalar();
    return true;
  }

  bool read(const Field& field, const YAML::Node& value, std::vector<std::string>& slot) {
    slot.clear();
    if (value.IsScalar()) {
      slot.push_back(value.Scalar());
      return true;
    }
    if (!value.IsSequence()) {
      return false;
    }
    for (const auto& item : value) {
      if (!read(field, item, slot.emplace_back())) {
        return false;
      }
    }
    return true;
  }

  bool read(const Field&, const YAML::Node& value, nlohmann::json& slot) {
    slot = value.IsNull() ? nlohmann::json::object() : to_json(value, source_);
    return slot.is_object();
  }

  template <typename Enum>
  requires std::is_enum_v<Enum> || std::is_pointer_v<Enum>
  bool read(const Field&, const YAML::Node& value, Enum& slot) {
    for (const auto& entry : enum_names(slot)) {
      if (value.IsScalar() && entry.name == value.Scalar()) {
        slot = entry.value;
        return true;
      }
    }
    return false;
  }

  TrainConfig& config_;
  YamlSource source_;
};

void apply_override(TrainConfig& config, const std::string& text) {
  const YamlSource source{.name = "--set " + text, .has_lines = false};
  const auto equals = text.find('=');
  require(equals != std::string::npos && equals > 0, "{}: expected key=value", source.name);
  const YAML::Node value = load_yaml(text.substr(equals + 1), source);
  Assigner(config, source).entry(text.substr(0, equals), value, source.name);
}

void check_model(const TrainConfig& config, const std::string& where) {
  const bool inlined = !config.model.config.empty();
  require(
      inlined || !config.model.path.empty(),
      "{}: no model: give model.path (a Hugging Face folder or config.json) or the fields in model.config",
      where);
  require(!inlined || config.model.path.empty(),
          "{}: model.path = {} and model.config are both given; keep one (--set model.path='\"\"' or "
          "--set model.config={{}} clears the other)",
          where, config.model.path);
  require(!config.model.load_weights || !config.model.path.empty(),
          "{}: model.load_weights = true needs model.path, the folder that holds the weights", where);
}

/// What a single field cannot show.
void check(const TrainConfig& config, const std::string& where) {
  require(!config.name.empty() && config.name.find('/') == std::string::npos && config.name != "." &&
              config.name != "..",
          "{}: name = '{}': expected the name of a folder, without '/'", where, config.name);
  require(!config.output_dir.empty(), "{}: output_dir is empty: expected the folder of the runs", where);
  check_model(config, where);
  require(!config.data.path.empty(), "{}: data.path is missing: give text files or folders", where);
  for (const std::string& path : config.data.path) {
    require(!path.empty(), "{}: data.path holds an empty path", where);
  }
  const auto& train = config.train;
  require(train.global_batch_size % train.micro_batch_size == 0,
          "{}: train.global_batch_size = {} is not a multiple of train.micro_batch_size = {}", where,
          train.global_batch_size, train.micro_batch_size);
  require(config.optimizer.min_lr <= config.optimizer.lr,
          "{}: optimizer.min_lr = {} is greater than optimizer.lr = {}", where, config.optimizer.min_lr,
          config.optimizer.lr);
}

}  // namespace

TrainConfig parse_config(std::string_view yaml, const std::string& where,
                         std::span<const std::string> overrides) {
  TrainConfig config;
  const YamlSource source{.name = where};
  const YAML::Node root = load_yaml(std::string(yaml), source);
  require(root.IsMap() || root.IsNull(), "{}: expected a map of keys, as in 'train: {{steps: 100}}'",
          source.at(root));
  Assigner(config, source).section(root, "");
  for (const std::string& text : overrides) {
    apply_override(config, text);
  }
  check(config, where);
  return config;
}

TrainConfig read_config(const std::filesystem::path& given, std::span<const std::string> overrides) {
  const std::filesystem::path file = with_installed(given);
  std::error_code error;
  require(!std::filesystem::is_directory(file, error), "{}: is a folder; expected a YAML file",
          file.string());
  std::ifstream stream(file, std::ios::binary);
  if (!stream.is_open()) {
    const int reason = errno;
    const auto installed = installed_configs();
    fail("{}: cannot read the configuration: {}{}", file.string(), std::strerror(reason),
         installed.empty() ? "" : "; installed with the program: " + join_choices(installed));
  }
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  require(!stream.bad(), "{}: cannot read the configuration: {}", file.string(), std::strerror(errno));
  return parse_config(text, file.string(), overrides);
}

}  // namespace expedite::train
