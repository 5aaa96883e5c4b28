#include "expedite/base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>

namespace expedite {

void initialize_logging(int rank, int ranks) {
  auto logger =
      std::make_shared<spdlog::logger>("expedite", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  const std::string where = ranks > 1 ? fmt::format("[rank {}] ", rank) : std::string();
  logger->set_pattern("%^%l%$: " + where + "%v");
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace expedite
