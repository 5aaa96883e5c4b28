#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "expedite/cli/app_tree.h"
#include "expedite/cli/commands.h"
#include "expedite/cli/help_format.h"
#include "expedite/cli/usage.h"
#include "expedite/cli/version.h"

namespace expedite::cli {
namespace {

int complain(int status, const std::string& text) {
  fmt::print(stderr, "{}\n", text);
  return status;
}

/// What was printed may still be in the buffer, and the disk full.
int close_output(int status) {
  if (std::fflush(stdout) != 0 && errno != EPIPE) {
    return complain(kFailed, fmt::format("expedite: cannot write standard output: {}", std::strerror(errno)));
  }
  return status;
}

int parse_and_run(CLI::App& app, const Context& context) {
  try {
    // CLI11 takes them from the back.
    app.parse(std::vector<std::string>(context.arguments.rbegin(), context.arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", help_of(named_command(app)));
    return kDone;
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}", version.what());
    return kDone;
  } catch (const CLI::ParseError& error) {
    return complain(kUsage, usage_message(app, error));
  } catch (const UsageError& error) {
    return complain(kUsage, fmt::format("{}: {}", full_name(named_command(app)), error.what()));
  } catch (const std::bad_alloc&) {
    return complain(kFailed, "expedite: out of memory");
  } catch (const std::exception& error) {
    return complain(kFailed, fmt::format("expedite: {}", error.what()));
  }
  const CLI::App& named = named_command(app);
  if (!visible_commands(named).empty()) {  // `expedite` or `expedite bench` alone
    fmt::print(stderr, "{}", help_of(named));
    return kUsage;
  }
  return context.exit_code;
}

}  // namespace

void add_everything(CLI::App& app, Context& context) {
  app.formatter(std::make_shared<HelpFormat>());
  app.require_subcommand(0, 1);
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.set_version_flag("--version", version_text, "Show versions, commit and what this CPU can do");
  add_train_command(app, context);
  add_eval_command(app, context);
  add_export_command(app, context);
  add_compare_command(app, context);
  add_probe_command(app, context);
  add_bench_command(app, context);
  add_plan_command(app, context);
  add_simulate_command(app, context);
  add_schedule_command(app, context);
  add_validate_command(app, context);
  add_tokenize_command(app, context);
  add_config_command(app, context);
  add_completion_command(app, context);
  add_man_page_command(app, context);
  add_help_command(app, context);
  app.footer(
      "expedite help COMMAND says what a command takes; docs/cli.md has exit statuses and completion.");
}

int run_program(const std::vector<std::string>& arguments) {
  // hwloc's remarks on a machine's firmware tables are not for those who train on it.
  constexpr const char* kHideAll = "2";
  setenv("HWLOC_HIDE_ERRORS", kHideAll, 0);
  Context context{.arguments = arguments};
  CLI::App app("Plans, simulates and trains mixture-of-experts models with expert parallelism", "expedite");
  add_everything(app, context);
  return close_output(parse_and_run(app, context));
}

}  // namespace expedite::cli
