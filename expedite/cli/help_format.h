// How --help shows commands and options.
#pragma once

#include <CLI/CLI.hpp>

namespace expedite::cli {

/// "--top INT 1..1000 (default 10)": what an option takes, in words a reader need not look up.
class HelpFormat : public CLI::Formatter {
 public:
  [[nodiscard]] std::string make_option_opts(const CLI::Option* option) const override;
};

}  // namespace expedite::cli
