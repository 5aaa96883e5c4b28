#include "expedite/cli/completion.h"

#include <fmt/format.h>

#include <vector>

#include "expedite/cli/app_tree.h"
#include "expedite/train/config_schema.h"

namespace expedite::cli {
namespace {

/// In single quotes, for either shell.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return result + "'";
}

/// A command's name below the program's: "", "train", "bench layer".
std::string below(const CLI::App& command) {
  const std::string name = full_name(command);
  const auto space = name.find(' ');
  return space == std::string::npos ? "" : name.substr(space + 1);
}

/// `expedite help` takes the commands' names.
const CLI::App& named_by(const CLI::App& app, const CLI::App& command) {
  return below(command) == "help" ? app : command;
}

std::vector<std::string> option_words(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::Option* option : visible_options(command)) {
    const auto names = spellings(*option);
    words.insert(words.end(), names.begin(), names.end());
  }
  return words;
}

/// Values of an option that are known beforehand; empty: files, or anything.
std::vector<std::string> values_of(const CLI::Option& option) {
  std::vector<std::string> values = choices(option);
  if (option.check_lname("set")) {
    for (const train::Field& field : train::schema()) {
      values.push_back(fmt::format("{}=", field.key));
    }
  }
  return values;
}

/// A branch for each command that tells it from the words before.
std::string command_branches(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : with_descendants(app)) {
    if (command != &app) {
      const CLI::App* parent = command->get_parent();
      text += fmt::format("      {}) command={} ;;\n", quoted(below(*parent) + " " + command->get_name()),
                          quoted(below(*command)));
    }
  }
  return text;
}

/// A branch for each option with a value; `make` writes its body from the known values.
template <typename Make>
std::string value_branches(const CLI::App& app, const Make& make) {
  std::string text;
  for (const CLI::App* command : with_descendants(app)) {
    for (const CLI::Option* option : visible_options(*command)) {
      if (!takes_value(*option)) {
        continue;
      }
      for (const std::string& name : spellings(*option)) {
        text += fmt::format("    {}) {} ;;\n", quoted(below(*command) + ":" + name), make(*option));
      }
    }
  }
  return text;
}

std::string bash_values(const CLI::Option& option) {
  const auto values = values_of(option);
  if (values.empty()) {
    return "return";  // files: complete -o default
  }
  const bool open_ended = values.front().ends_with('=');
  return fmt::format("COMPREPLY=($(compgen -W {} -- \"$current\")){}; return",
                     quoted(fmt::format("{}", fmt::join(values, " "))),
                     open_ended ? "; compopt -o nospace 2> /dev/null" : "");
}

std::string zsh_values(const CLI::Option& option) {
  const auto values = values_of(option);
  if (values.empty()) {
    return "_files; return";
  }
  return fmt::format("compadd {}-- {}; return", values.front().ends_with('=') ? "-S '' " : "",
                     fmt::join(values, " "));
}

/// What _describe takes: 'name:description', colons of the name escaped.
std::string described(const std::string& name, const std::string& description) {
  return quoted(name + ":" + description.substr(0, description.find('\n')));
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::string branches;
  for (const CLI::App* command : with_descendants(app)) {
    std::vector<std::string> words;
    for (const CLI::App* child : visible_commands(named_by(app, *command))) {
      words.push_back(child->get_name());
    }
    const auto options = option_words(*command);
    words.insert(words.end(), options.begin(), options.end());
    branches += fmt::format("    {}) words={} ;;\n", quoted(below(*command)),
                            quoted(fmt::format("{}", fmt::join(words, " "))));
  }
  return fmt::format(R"(# Completion of expedite for bash, made by `expedite completion bash`.
_expedite() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command='' words='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${{COMP_WORDS[i]}}" in
{}    esac
  done
  case "$command:$previous" in
{}  esac
  case "$command" in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _expedite expedite
)",
                     command_branches(app), value_branches(app, bash_values), branches);
}

std::string zsh_completion(const CLI::App& app) {
  std::string branches;
  for (const CLI::App* command : with_descendants(app)) {
    std::string commands;
    for (const CLI::App* child : visible_commands(named_by(app, *command))) {
      commands += " " + described(child->get_name(), child->get_description());
    }
    std::string options;
    for (const CLI::Option* option : visible_options(*command)) {
      for (const std::string& name : spellings(*option)) {
        options += " " + described(name, option->get_description());
      }
    }
    branches +=
        fmt::format("    {}) commands=({}) options=({}) ;;\n", quoted(below(*command)), commands, options);
  }
  return fmt::format(R"(#compdef expedite
# Completion of expedite for zsh, made by `expedite completion zsh`.
_expedite() {{
  local command='' i
  local -a commands options
  for ((i = 2; i < CURRENT; ++i)); do
    case "$command $words[i]" in
{}    esac
  done
  case "$command:$words[CURRENT-1]" in
{}  esac
  case "$command" in
{}  esac
  if [[ $PREFIX == -* ]]; then
    _describe -o option options
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}}
if [[ $funcstack[1] == _expedite ]]; then
  _expedite "$@"
else
  compdef _expedite expedite
fi
)",
                     command_branches(app), value_branches(app, zsh_values), branches);
}

}  // namespace expedite::cli
