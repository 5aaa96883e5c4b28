// The configuration as text: written back as YAML, and its reference as Markdown.
#include <algorithm>
#include <filesystem>
#include <type_traits>

#include "expedite/base/error.h"
#include "expedite/base/yaml.h"
#include "expedite/train/config.h"
#include "expedite/train/config_schema.h"

namespace expedite::train {
namespace {

/// The shortest decimal that reads as this very double, and as a number rather than an integer.
std::string number(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string list(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) {
    text += (text.size() > 1 ? ", " : "") + yaml_string(item);
  }
  return text + "]";
}

/// One key per line; JSON inside a line is YAML too.
std::string map(const nlohmann::json& object, const std::string& indent) {
  if (object.empty()) {
    return "{}";
  }
  std::string text;
  for (const auto& [key, value] : object.items()) {
    text += fmt::format("\n{}{}: {}", indent, yaml_string(key), value.dump());
  }
  return text;
}

std::string value_text(const Slot& slot, const std::string& indent) {
  return std::visit(
      [&](auto* value) -> std::string {
        using Value = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool> || std::is_same_v<Value, std::int64_t>) {
          return fmt::format("{}", *value);
        } else if constexpr (std::is_same_v<Value, double>) {
          return number(*value);
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return yaml_string(*value);
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return list(*value);
        } else if constexpr (std::is_same_v<Value, nlohmann::json>) {
          return map(*value, indent);
        } else if constexpr (std::is_same_v<Value, ChunkCount>) {
          return value->automatic ? std::string(kAutomatic) : fmt::format("{}", value->chunks);
        } else {
          return enum_name(*value);
        }
      },
      slot);
}

std::vector<std::string_view> split(std::string_view key) {
  std::vector<std::string_view> parts;
  for (auto dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.')) {
    parts.push_back(key.substr(0, dot));
    key.remove_prefix(dot + 1);
  }
  parts.push_back(key);
  return parts;
}

}  // namespace

std::string to_yaml(const TrainConfig& config) {
  TrainConfig copy = config;  // slots are to writable fields
  std::string yaml;
  std::vector<std::string_view> open;  // sections
  for (const Field& field : schema()) {
    const auto parts = split(field.key);
    const std::size_t depth = parts.size() - 1;
    const auto shared = static_cast<std::size_t>(
        std::mismatch(open.begin(), open.end(), parts.begin(), parts.end() - 1).first - open.begin());
    for (std::size_t level = shared; level < depth; ++level) {
      yaml += fmt::format("{}{}:\n", std::string(2 * level, ' '), parts[level]);
    }
    open.assign(parts.begin(), parts.end() - 1);
    const std::string value = value_text(field.slot(copy), std::string(2 * (depth + 1), ' '));
    yaml += fmt::format("{}{}:{}{}\n", std::string(2 * depth, ' '), parts.back(),
                        value.starts_with('\n') ? "" : " ", value);
  }
  return yaml;
}

TrainConfig with_absolute_paths(TrainConfig config) {
  const auto make_absolute = [](std::string& path) {
    path = std::filesystem::absolute(path).lexically_normal().string();
  };
  make_absolute(config.output_dir);
  for (std::string& path : config.data.path) {
    make_absolute(path);
  }
  if (!config.model.path.empty()) {
    make_absolute(config.model.path);
  }
  std::error_code ignored;
  if (std::filesystem::exists(config.data.tokenizer, ignored)) {  // else it is a name
    make_absolute(config.data.tokenizer);
  }
  return config;
}

std::string config_reference() {
  TrainConfig defaults;
  std::string table = "| Key | Default | Legal values | Meaning |\n|---|---|---|---|\n";
  for (const Field& field : schema()) {
    table += fmt::format("| `{}` | `{}` | {} | {} |\n", field.key, value_text(field.slot(defaults), ""),
                         legal_values(field), field.help);
  }
  return table;
}

}  // namespace expedite::train
