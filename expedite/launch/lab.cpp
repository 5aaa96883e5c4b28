#include "expedite/launch/lab.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "expedite/base/error.h"
#include "expedite/base/installation.h"
#include "expedite/launch/launcher.h"

namespace expedite::launch {
namespace {

/// A number without sign at the beginning of `text`, which is taken off; 0 where there is none.
std::int64_t take_number(std::string_view& text) {
  std::int64_t value = 0;
  constexpr std::size_t kMostDigits = 4;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + std::min(text.size(), kMostDigits), value);
  if (error != std::errc() || value < 0) {
    return 0;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

LabSpec parse_lab_spec(std::string_view text) {
  std::string_view rest = text;
  LabSpec spec;
  spec.nodes = take_number(rest);
  const bool separated = rest.starts_with('x');
  rest.remove_prefix(separated ? 1 : 0);
  spec.ranks_per_node = take_number(rest);
  require(
      separated && spec.nodes > 0 && spec.ranks_per_node > 0 && (rest.empty() || rest.starts_with('@')),
      "--lab {}: expected NODESxRANKS or NODESxRANKS@RATE, for example 2x2@2gbit: nodes, ranks on each, and "
      "the links' speed",
      text);
  require(spec.ranks() <= kMostRanks, "--lab {}: {} ranks; this machine runs at most {}", text, spec.ranks(),
          kMostRanks);
  return spec;
}

std::vector<std::string> arguments_in_lab(const std::vector<std::string>& arguments, std::int64_t ranks) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--lab" || argument == "--ranks") {
      ++i;  // its value
    } else if (!argument.starts_with("--lab=") && !argument.starts_with("--ranks=")) {
      result.push_back(arguments[i]);
      continue;
    }
    if (argument.starts_with("--lab")) {
      result.insert(result.end(), {"--ranks", std::to_string(ranks)});
    }
  }
  return result;
}

void become_lab(const std::string& spec, const std::vector<std::string>& arguments,
                const std::filesystem::path& lab) {
  const std::string program = this_program();
  const std::string script = lab.empty() ? program_tool("lab") : lab;
  std::vector<std::string> command = {script, spec, program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (std::string& word : command) {
    words.push_back(word.data());
  }
  words.push_back(nullptr);
  execv(script.c_str(), words.data());
  fail("cannot start a lab: {}: {}. The script must be there, and python3 in PATH", script,
       std::strerror(errno));
}

}  // namespace expedite::launch
