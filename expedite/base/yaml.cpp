#include "expedite/base/yaml.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <sstream>

#include "expedite/base/error.h"

namespace expedite {
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxNodes = 100'000;  // aliases can make a short text exponentially large

bool is_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?
bool is_number(std::string_view text) {
  const auto drop_sign = [](std::string_view& part) {
    if (!part.empty() && (part.front() == '-' || part.front() == '+')) {
      part.remove_prefix(1);
    }
  };
  drop_sign(text);
  if (const auto e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view exponent = text.substr(e + 1);
    drop_sign(exponent);
    if (!is_digits(exponent)) {
      return false;
    }
    text = text.substr(0, e);
  }
  const auto dot = text.find('.');
  if (dot == std::string_view::npos) {
    return is_digits(text);
  }
  const std::string_view whole = text.substr(0, dot);
  const std::string_view fraction = text.substr(dot + 1);
  return whole.empty() ? is_digits(fraction) : is_digits(whole) && (fraction.empty() || is_digits(fraction));
}

template <typename Integer>
bool read_integer(std::string_view digits, int base, Integer& value) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  return error == std::errc() && end == digits.data() + digits.size();
}

/// An integer that fits 64 bits, signed where it can be; else null.
nlohmann::json integer(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0o")) {
    base = text[1] == 'x' ? 16 : 8;
    text.remove_prefix(2);
    if (text.starts_with('-')) {
      return nullptr;
    }
  } else if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) {
      return nullptr;
    }
  }
  if (std::int64_t value = 0; read_integer(text, base, value)) {
    return value;
  }
  if (std::uint64_t value = 0; read_integer(text, base, value)) {
    return value;
  }
  return nullptr;
}

class Converter {
 public:
  explicit Converter(const YamlSource& source) : source_(source) {}

  nlohmann::json convert(const YAML::Node& node, int depth = 0) {
    require(depth < kMaxDepth && ++nodes_ < kMaxNodes,
            "{}: nested too deeply or too large (an alias that refers to itself?)", source_.at(node));
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        return scalar(node);
      case YAML::NodeType::Sequence:
        return sequence(node, depth);
      case YAML::NodeType::Map:
        return map(node, depth);
      case YAML::NodeType::Null:
      case YAML::NodeType::Undefined:
        break;
    }
    return nullptr;
  }

 private:
  nlohmann::json scalar(const YAML::Node& node) const {
    if (node.Tag() != "?") {  // quoted, or tagged
      return node.Scalar();
    }
    auto value = plain_scalar(node.Scalar());
    require(!value.is_number_float() || std::isfinite(value.get<double>()), "{}: {} is not a finite number",
            source_.at(node), node.Scalar());
    return value;
  }

  nlohmann::json sequence(const YAML::Node& node, int depth) {
    auto array = nlohmann::json::array();
    for (const auto& item : node) {
      array.push_back(convert(item, depth + 1));
    }
    return array;
  }

  nlohmann::json map(const YAML::Node& node, int depth) {
    auto object = nlohmann::json::object();
    for (const auto& entry : node) {
      const YAML::Node& key = entry.first;
      require(key.IsScalar(), "{}: a key must be a name", source_.at(key));
      require(!object.contains(key.Scalar()), "{}: the key {} is there twice; keep one", source_.at(key),
              key.Scalar());
      object[key.Scalar()] = convert(entry.second, depth + 1);
    }
    return object;
  }

  const YamlSource& source_;
  int nodes_ = 0;
};

/// Parser events, of which nothing is kept.
class Ignore final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}
};

/// YAML::LoadAll would tell too, but never ends on a text like ",": the parser makes a document of nothing
/// and stays where it is.
bool has_second_document(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Ignore ignore;
  return parser.HandleNextDocument(ignore) && parser.HandleNextDocument(ignore);
}

}  // namespace

std::string YamlSource::at(const YAML::Mark& mark) const {
  return has_lines && !mark.is_null() ? fmt::format("{}:{}", name, mark.line + 1) : name;
}

YAML::Node load_yaml(const std::string& text, const YamlSource& source) {
  try {
    require(!has_second_document(text), "{}: one YAML document is expected, but more follows the first",
            source.name);
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    fail("{}: not valid YAML: {}", source.at(error.mark), error.msg);
  }
}

nlohmann::json plain_scalar(std::string_view text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    return nullptr;
  }
  if (text == "true" || text == "True" || text == "TRUE") {
    return true;
  }
  if (text == "false" || text == "False" || text == "FALSE") {
    return false;
  }
  if (auto value = integer(text); !value.is_null()) {
    return value;
  }
  if (is_number(text)) {
    return std::strtod(std::string(text).c_str(), nullptr);
  }
  std::string_view magnitude = text;
  const bool negative = magnitude.starts_with('-');
  if (negative || magnitude.starts_with('+')) {
    magnitude.remove_prefix(1);
  }
  if (magnitude == ".inf" || magnitude == ".Inf" || magnitude == ".INF") {
    return negative ? -HUGE_VAL : HUGE_VAL;
  }
  if (text == ".nan" || text == ".NaN" || text == ".NAN") {
    return std::nan("");
  }
  return std::string(text);
}

nlohmann::json to_json(const YAML::Node& node, const YamlSource& source) {
  return Converter(source).convert(node);
}

std::string yaml_string(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '/' || c == '.' || c == '-';
  };
  if (std::ranges::all_of(text, plain) && !text.starts_with('-') && !text.starts_with('.') &&
      plain_scalar(text).is_string()) {
    return text;
  }
  return nlohmann::json(text).dump();
}

}  // namespace expedite
