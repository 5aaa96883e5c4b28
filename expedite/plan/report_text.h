// Reports as text, line by line.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <utility>

namespace expedite::plan {

template <typename... Args>
void line(std::string& text, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
  text += '\n';
}

}  // namespace expedite::plan
