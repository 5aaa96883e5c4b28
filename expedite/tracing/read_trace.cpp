#include "expedite/tracing/read_trace.h"

#include <cmath>
#include <map>
#include <string>

#include "expedite/base/error.h"
#include "expedite/base/strict_json.h"

namespace expedite::tracing {
namespace {

using nlohmann::json;

/// The value of an enumeration of `count` that has this name.
template <typename Enum>
Enum value_of(const std::string& name, int count, const std::string& where) {
  for (int i = 0; i < count; ++i) {
    if (name_of(static_cast<Enum>(i)) == name) {
      return static_cast<Enum>(i);
    }
  }
  fail("{}: no task of a schedule is called {}", where, name);
}

std::int64_t nanoseconds(const json& microseconds) {
  return std::llround(microseconds.get<double>() * 1e3);
}

TraceEvent to_event(const json& entry, const std::string& where) {
  constexpr int kPasses = static_cast<int>(schedule::Pass::update) + 1;
  const json& args = entry.at("args");
  const int stream = entry.at("tid").get<int>();
  require(stream >= 0 && stream < schedule::kStreams, "{}: there is no stream {}", where, stream);
  TraceEvent event;
  event.op = value_of<schedule::Op>(entry.at("cat").get<std::string>(), schedule::kOps, where);
  event.pass = value_of<schedule::Pass>(args.at("pass").get<std::string>(), kPasses, where);
  event.stream = static_cast<schedule::Stream>(stream);
  event.layer = args.value("layer", -1);
  event.micro_batch = args.value("micro_batch", -1);
  event.chunk = args.value("chunk", -1);
  event.chunks = args.value("chunks", 1);
  event.begin = nanoseconds(entry.at("ts"));
  event.end = event.begin + nanoseconds(entry.at("dur"));
  event.wait = args.contains("wait_us") ? nanoseconds(args.at("wait_us")) : 0;
  event.exposed = args.contains("exposed_us") ? nanoseconds(args.at("exposed_us")) : 0;
  event.bytes = args.value("bytes", std::int64_t{0});
  return event;
}

}  // namespace

std::vector<RankTrace> read_chrome_trace(const std::filesystem::path& path) {
  const json trace = read_strict_json(path);
  std::map<int, RankTrace> ranks;
  try {
    for (const json& entry : trace.at("traceEvents")) {
      if (entry.at("ph").get<std::string>() == "X") {
        RankTrace& rank = ranks[entry.at("pid").get<int>()];
        rank.events.push_back(to_event(entry, path.string()));
      }
    }
  } catch (const json::exception& error) {
    fail("{}: this is not a trace of Expedite's: {}", path.string(), error.what());
  }
  std::vector<RankTrace> result;
  for (auto& [number, rank] : ranks) {
    rank.rank = number;
    result.push_back(std::move(rank));
  }
  return result;
}

}  // namespace expedite::tracing
