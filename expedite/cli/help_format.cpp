#include "expedite/cli/help_format.h"

#include <fmt/format.h>

#include "expedite/cli/app_tree.h"

namespace expedite::cli {

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  if (!takes_value(*option)) {
    return "";
  }
  std::string text = " " + option->get_type_name();
  if (option->get_expected_max() == CLI::detail::expected_max_vector_size) {
    text += " ...";
  }
  if (std::string given = option->get_default_str(); !given.empty()) {
    std::erase_if(given,
                  [](char c) { return c == '[' || c == ']'; });  // as it is written on the command line
    text += fmt::format(" (default {})", given);
  }
  if (option->get_required()) {
    text += " (required)";
  }
  for (const CLI::Option* needed : option->get_needs()) {
    text += fmt::format(" (with {})", needed->get_name());
  }
  return text;
}

}  // namespace expedite::cli
