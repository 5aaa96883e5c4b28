#include "expedite/cli/usage.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "expedite/base/text.h"
#include "expedite/cli/app_tree.h"
#include "expedite/cli/option_meanings.h"

namespace expedite::cli {
namespace {

/// Commands by what other programs call them.
std::optional<std::string_view> command_meant_by(std::string_view name) {
  struct Meaning {
    std::string_view command;
    std::vector<std::string_view> names;
  };
  static const std::vector<Meaning> kMeanings = {
      {"train", {"run", "pretrain", "finetune", "fine-tune", "sft", "fit", "launch", "start"}},
      {"eval", {"evaluate", "test", "perplexity"}},
      {"export", {"convert", "save", "to-hf"}},
      {"compare", {"diff", "verify", "check"}},
      {"probe", {"measure", "profile", "calibrate"}},
      {"bench", {"benchmark", "perf", "speed"}},
      {"plan", {"search", "tune", "autotune", "optimize", "estimate"}},
      {"simulate", {"sim", "predict", "trace"}},
      {"schedule", {"tasks", "actions", "dump-schedule", "print-schedule"}},
      {"config", {"configuration", "keys", "options", "schema", "settings"}},
      {"help", {"usage", "man"}}};
  for (const Meaning& meaning : kMeanings) {
    if (std::ranges::find(meaning.names, name) != meaning.names.end()) {
      return meaning.command;
    }
  }
  return std::nullopt;
}

std::string unexpected(const CLI::App& command, const std::string& argument) {
  if (argument.size() > 1 && argument.starts_with('-')) {
    return fmt::format("there is no option {}; {}", argument.substr(0, argument.find('=')),
                       advice_for_option(command, argument));
  }
  if (!visible_commands(command).empty()) {
    return unknown_command(command, argument);
  }
  return fmt::format("'{}' was not expected", argument);
}

/// The option that CLI11's text begins with: "--ranks: 1 required INT missing".
const CLI::Option* option_of(const CLI::App& command, const std::string& text) {
  return command.get_option_no_throw(text.substr(0, text.find_first_of(": ")));
}

std::string mismatch(const CLI::App& command, const std::string& text) {
  const CLI::Option* option = option_of(command, text);
  if (option == nullptr) {
    return text;
  }
  return option->count() > 1
             ? fmt::format("{} is there {} times; keep one", option->get_name(), option->count())
             : fmt::format("{} needs a value: {}", option->get_name(), option->get_type_name());
}

/// By its code: CLI11 gives some errors the command's name in place of their own.
bool is(const CLI::ParseError& error, CLI::ExitCodes code) {
  return error.get_exit_code() == static_cast<int>(code);
}

std::string sentence(const CLI::App& command, const CLI::ParseError& error) {
  const std::string text = error.what();
  // Before what is required: a misspelt option is why that is missing.
  if (const auto rest = command.remaining(); !rest.empty()) {
    const auto dashed =
        std::ranges::find_if(rest, [](const std::string& each) { return each.starts_with('-'); });
    if (dashed != rest.end() || is(error, CLI::ExitCodes::ExtrasError)) {
      return unexpected(command, dashed != rest.end() ? *dashed : rest.front());
    }
  }
  if (is(error, CLI::ExitCodes::ArgumentMismatch)) {
    return mismatch(command, text);
  }
  if (is(error, CLI::ExitCodes::ConversionError)) {  // of flags; options with values have their own checks
    const CLI::Option* option = option_of(command, text);
    return option == nullptr ? text : fmt::format("{} takes no value", option->get_name());
  }
  if (is(error, CLI::ExitCodes::ExcludesError)) {
    const auto middle = text.find(" excludes ");
    return middle == std::string::npos ? text
                                       : fmt::format("{} and {} cannot be given together",
                                                     text.substr(0, middle), text.substr(middle + 10));
  }
  return text;
}

}  // namespace

std::string unknown_command(const CLI::App& parent, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* child : visible_commands(parent)) {
    names.push_back(child->get_name());
  }
  std::string word = name;
  std::ranges::transform(word, word.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto meant = command_meant_by(word);
  const bool known = meant && std::ranges::find(names, *meant) != names.end();
  return fmt::format("'{}' is not a command of {}; the nearest is {}", name, full_name(parent),
                     known ? std::string(*meant) : nearest_name(word, names));
}

const CLI::App& named_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().back();
  }
  return *command;
}

std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = named_command(app);
  const std::string name = full_name(command);
  const bool of_value = is(error, CLI::ExitCodes::ValidationError);
  return fmt::format("{}: {}{}", name, sentence(command, error),
                     of_value ? std::string() : fmt::format(" (see {} --help)", name));
}

}  // namespace expedite::cli
