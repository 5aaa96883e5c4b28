#include "expedite/base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>

namespace expedite {

void initialize_logging(int rank, int ranks) {
  // The sink colours only on a terminal that can show it. https://no-color.org
  const char* const no_color = std::getenv("NO_COLOR");
  const bool plain = no_color != nullptr && *no_color != '\0';
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(plain ? spdlog::color_mode::never
                                                                          : spdlog::color_mode::automatic);
  auto logger = std::make_shared<spdlog::logger>("expedite", std::move(sink));
  const std::string where = ranks > 1 ? fmt::format("[rank {}] ", rank) : std::string();
  logger->set_pattern("%^%l%$: " + where + "%v");
  spdlog::set_default_logger(std::move(logger));
}

void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::scoped_lock lock(mutex);
  if (told.insert(text).second) {
    spdlog::warn("{}", text);
  }
}

}  // namespace expedite
