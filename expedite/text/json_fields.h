// What several parts of a tokenizer.json are written with.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "expedite/base/config_fields.h"
#include "expedite/text/pattern.h"

namespace expedite::text {

/// `pattern`: {"String": ...} or {"Regex": ...}. An empty string is an Error.
[[nodiscard]] std::unique_ptr<Pattern> pattern_of(const ConfigFields& fields);

/// The entries of the list `field`, each with where it stands for messages; an absent list is an Error.
[[nodiscard]] std::vector<std::pair<std::string, nlohmann::json>> parts_of(const ConfigFields& fields,
                                                                           const char* field);

}  // namespace expedite::text
