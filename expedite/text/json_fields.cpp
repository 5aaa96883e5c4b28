#include "expedite/text/json_fields.h"

namespace expedite::text {

std::unique_ptr<Pattern> pattern_of(const ConfigFields& fields) {
  const nlohmann::json* value = fields.find("pattern");
  require(value != nullptr && value->is_object() && value->size() == 1 &&
              (value->contains("String") || value->contains("Regex")) && value->begin()->is_string(),
          "{}: pattern must be {{\"String\": text}} or {{\"Regex\": text}}, not {}", fields.where(),
          excerpt(value == nullptr ? nlohmann::json() : *value));
  const auto text = value->begin()->get<std::string>();
  require(!text.empty(), "{}: pattern is empty", fields.where());
  return value->contains("String") ? make_literal_pattern(text) : make_regex_pattern(text, fields.where());
}

std::vector<std::pair<std::string, nlohmann::json>> parts_of(const ConfigFields& fields, const char* field) {
  const nlohmann::json* list = fields.find(field);
  require(list != nullptr && list->is_array(), "{}: {} must be a list", fields.where(), field);
  std::vector<std::pair<std::string, nlohmann::json>> parts;
  for (std::size_t i = 0; i < list->size(); ++i) {
    parts.emplace_back(fmt::format("{}.{}[{}]", fields.where(), field, i), (*list)[i]);
  }
  return parts;
}

}  // namespace expedite::text
