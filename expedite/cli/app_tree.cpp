#include "expedite/cli/app_tree.h"

#include <algorithm>

namespace expedite::cli {

std::vector<const CLI::App*> visible_commands(const CLI::App& command) {
  return command.get_subcommands(
      [](const CLI::App* each) { return !each->get_name().empty() && !each->get_group().empty(); });
}

std::vector<const CLI::Option*> visible_options(const CLI::App& command) {
  return command.get_options(
      [](const CLI::Option* option) { return !option->get_group().empty() && option->nonpositional(); });
}

std::vector<const CLI::Option*> visible_positionals(const CLI::App& command) {
  return command.get_options(
      [](const CLI::Option* option) { return !option->get_group().empty() && option->get_positional(); });
}

std::vector<const CLI::App*> with_descendants(const CLI::App& command) {
  std::vector<const CLI::App*> all = {&command};
  for (const CLI::App* child : visible_commands(command)) {
    const auto below = with_descendants(*child);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : full_name(*parent) + " " + command.get_name();
}

const CLI::App* find_command(const CLI::App& parent, const std::string& name) {
  const auto children = visible_commands(parent);
  const auto found = std::ranges::find(children, name, &CLI::App::get_name);
  return found == children.end() ? nullptr : *found;
}

std::string help_of(const CLI::App& command) {
  // App::help() would go on to the command that has been parsed.
  return command.get_formatter()->make_help(&command, full_name(command), CLI::AppFormatMode::Normal);
}

std::vector<std::string> spellings(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) {
    names.push_back("--" + name);
  }
  for (const std::string& name : option.get_snames()) {
    names.push_back("-" + name);
  }
  return names;
}

bool takes_value(const CLI::Option& option) {
  return option.get_type_size() != 0;
}

std::vector<std::string> choices(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  std::vector<std::string> names;
  if (type.find('|') == std::string::npos || type.find(' ') != std::string::npos) {
    return names;
  }
  for (std::size_t begin = 0; begin <= type.size();) {
    const std::size_t end = std::min(type.find('|', begin), type.size());
    names.push_back(type.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

}  // namespace expedite::cli
