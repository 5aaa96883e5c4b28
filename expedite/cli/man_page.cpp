#include "expedite/cli/man_page.h"

#include <fmt/format.h>

#include "expedite/cli/app_tree.h"
#include "expedite/cli/help_format.h"
#include "expedite/cli/version.h"

namespace expedite::cli {
namespace {

/// Text as roff shows it unchanged.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) {
      result += std::string("\\&") + c;
    } else {
      result += c;
    }
  }
  return result;
}

std::string bold(const std::string& text) {
  return "\\fB" + escaped(text) + "\\fR";
}

std::string option_entry(const CLI::Option& option) {
  const bool positional = option.get_positional();
  std::string head;
  for (const std::string& name : positional ? std::vector{option.get_name(true)} : spellings(option)) {
    head += (head.empty() ? "" : ", ") + bold(name);
  }
  return fmt::format(".TP\n{}{}\n{}\n", head, escaped(HelpFormat().make_option_opts(&option)),
                     escaped(option.get_description()));
}

std::string command_section(const CLI::App& command) {
  std::string text =
      fmt::format(".SS {}\n{}.\n", bold(full_name(command)), escaped(command.get_description()));
  for (const CLI::Option* option : visible_positionals(command)) {
    text += option_entry(*option);
  }
  for (const CLI::Option* option : visible_options(command)) {
    text += option_entry(*option);
  }
  return text;
}

constexpr const char* kEnd = R"(.SH EXIT STATUS
.TP
0
Done.
.TP
1
Failed, or what was compared differs; one line on standard error says why.
.TP
2
The command line is wrong; nothing was started.
.TP
3
With \fB\-\-lab\fR: this machine allows no nodes.
.TP
128 + n
Signal n has ended the program or a rank.
.SH ENVIRONMENT
.TP
.B NO_COLOR
Where it is set and not empty, nothing is coloured. Output that is no terminal never is.
.SH FILES
A configuration that is not found as given is looked for among those that were installed with the program
.RI ( PREFIX /share/expedite).
Further documentation is in
.IR PREFIX /share/doc/expedite.
.SH SEE ALSO
.BR mpirun (1),
.BR srun (1)
)";

}  // namespace

std::string man_page(const CLI::App& app) {
  std::string text = fmt::format(
      ".TH EXPEDITE 1 \"\" \"expedite {}\" \"User Commands\"\n"
      ".SH NAME\nexpedite \\- plan, simulate and train mixture\\-of\\-experts models\n"
      ".SH SYNOPSIS\n.B expedite\n.I COMMAND\n[\\fIOPTIONS\\fR]\n"
      ".SH DESCRIPTION\n{}.\n.PP\n"
      "Numbers are decimal, within the limits that stand beside each option.\n.SH COMMANDS\n",
      version_number(), escaped(app.get_description()));
  for (const CLI::App* command : with_descendants(app)) {
    text += command_section(*command);
  }
  return text + kEnd;
}

}  // namespace expedite::cli
