#include "expedite/train/measured_run.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "expedite/base/error.h"
#include "expedite/base/median.h"
#include "expedite/cost/task_graph.h"
#include "expedite/tracing/read_trace.h"

namespace expedite::train {
namespace {

using schedule::Stream;
using tracing::TraceEvent;

bool is_of(const TraceEvent& event, const schedule::Task& task) {
  return event.op == task.op && event.pass == task.pass && event.layer == task.layer &&
         event.micro_batch == task.micro_batch && event.chunk == task.chunk;
}

/// A rank's events of one step by task; empty when they are not those of the schedule.
std::vector<const TraceEvent*> by_task(std::span<const TraceEvent* const> events,
                                       const schedule::Schedule& schedule) {
  std::array<std::vector<const TraceEvent*>, schedule::kStreams> of_stream;
  for (const TraceEvent* event : events) {
    of_stream[static_cast<std::size_t>(event->stream)].push_back(event);
  }
  std::array<std::size_t, schedule::kStreams> next{};
  std::vector<const TraceEvent*> result;
  for (const schedule::Task& task : schedule.tasks) {
    const auto stream = static_cast<std::size_t>(task.stream);
    if (next[stream] >= of_stream[stream].size() || !is_of(*of_stream[stream][next[stream]], task)) {
      return {};
    }
    result.push_back(of_stream[stream][next[stream]++]);
  }
  return result.size() == events.size() ? result : std::vector<const TraceEvent*>();
}

/// A rank's events, cut into steps where the first task of a step begins.
std::vector<std::vector<const TraceEvent*>> steps_of(const tracing::RankTrace& trace,
                                                     const schedule::Task& first) {
  std::vector<const TraceEvent*> events;
  for (const TraceEvent& event : trace.events) {
    events.push_back(&event);
  }
  std::ranges::stable_sort(events, {}, &TraceEvent::begin);
  std::vector<std::vector<const TraceEvent*>> steps;
  for (const TraceEvent* event : events) {
    if (is_of(*event, first)) {
      steps.emplace_back();
    }
    if (!steps.empty()) {
      steps.back().push_back(event);
    }
  }
  return steps;
}

/// Of one step, whose events are by rank and task.
ClassSeconds seconds_of(const cost::TaskGraph& graph,
                        const std::vector<std::vector<const TraceEvent*>>& ranks) {
  std::vector<const TraceEvent*> events;  // by node of the graph
  for (const auto& rank : ranks) {
    events.insert(events.end(), rank.begin(), rank.end());
  }
  ClassSeconds seconds;
  for (cost::Node node = 0; node < graph.nodes(); ++node) {
    const TraceEvent& event = *events[static_cast<std::size_t>(node)];
    std::int64_t begin = event.begin;
    for (const cost::Node member : graph.meeting(node)) {
      begin = std::max(begin, events[static_cast<std::size_t>(member)]->begin);
    }
    seconds[{event.op, event.pass}] += static_cast<double>(std::max<std::int64_t>(event.end - begin, 0)) *
                                       1e-9 / static_cast<double>(ranks.size());
  }
  return seconds;
}

std::vector<nlohmann::json> read_metrics(const std::filesystem::path& run_dir) {
  const std::filesystem::path file = run_dir / "metrics.jsonl";
  std::ifstream stream(file);
  require(stream.is_open(), "{}: cannot open the metrics of the run", file.string());
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(nlohmann::json::parse(line, nullptr, false));
    const nlohmann::json& read = lines.back();
    const auto time = read.find("step_ms");
    require(read.is_object() && time != read.end() && time->is_number() && time->get<double>() > 0.0,
            "{}:{}: this is no line of metrics", file.string(), lines.size());
  }
  return lines;
}

}  // namespace

std::vector<ClassSeconds> class_seconds(std::span<const tracing::RankTrace> traces,
                                        std::span<const schedule::Schedule> schedules) {
  require(traces.size() == schedules.size(), "a trace of {} ranks, where the job has {}", traces.size(),
          schedules.size());
  std::vector<cost::RankClass> ranks;
  std::vector<std::vector<std::vector<const TraceEvent*>>> steps;  // [rank][step][event]
  std::size_t count = 0;
  for (std::size_t rank = 0; rank < traces.size(); ++rank) {
    ranks.push_back({&schedules[rank]});
    steps.push_back(steps_of(traces[rank], schedules[rank].tasks.front()));
    count = rank == 0 ? steps[rank].size() : std::min(count, steps[rank].size());
  }
  const cost::TaskGraph graph(ranks);
  std::vector<ClassSeconds> result;
  for (std::size_t step = 0; step < count; ++step) {
    std::vector<std::vector<const TraceEvent*>> events;
    for (std::size_t rank = 0; rank < traces.size(); ++rank) {
      events.push_back(by_task(steps[rank][step], schedules[rank]));
    }
    if (std::ranges::none_of(events, [](const auto& of_rank) { return of_rank.empty(); })) {
      result.push_back(seconds_of(graph, events));
    }
  }
  require(
      !result.empty(),
      "the trace has no step with the tasks of this configuration: it is of another one, or of no training "
      "step");
  return result;
}

std::vector<ExpertLoads> measured_loads(const std::filesystem::path& run_dir) {
  std::vector<ExpertLoads> steps;
  for (const nlohmann::json& line : read_metrics(run_dir)) {
    if (const auto found = line.find("expert_loads"); found != line.end()) {
      try {
        steps.push_back(found->get<ExpertLoads>());
      } catch (const nlohmann::json::exception& error) {
        fail("{}: expert_loads of step {}: {}", (run_dir / "metrics.jsonl").string(), steps.size() + 1,
             error.what());
      }
    }
  }
  return steps;
}

StepTimes read_run(const std::filesystem::path& run_dir, std::span<const schedule::Schedule> schedules) {
  std::vector<double> seconds;
  std::vector<double> exposed;
  for (const nlohmann::json& line : read_metrics(run_dir)) {
    if (line.contains("expert_loads")) {  // traced
      seconds.push_back(line.at("step_ms").get<double>() * 1e-3);
      exposed.push_back(line.value("exposed_communication", 0.0));
    }
  }
  require(!seconds.empty(), "{}: metrics.jsonl has no traced step: train with trace.steps above 0",
          run_dir.string());
  const std::vector<tracing::RankTrace> traces = tracing::read_chrome_trace(run_dir / "trace.json");
  StepTimes run{.classes = median_classes(class_seconds(traces, schedules)), .steps = std::ssize(seconds)};
  run.step_seconds = median(std::move(seconds));
  run.exposed = median(std::move(exposed));
  return run;
}

ClassSeconds median_classes(std::span<const ClassSeconds> steps) {
  ClassSeconds result;
  for (const auto& [kind, unused] : steps.front()) {
    std::vector<double> of_steps;
    for (const ClassSeconds& step : steps) {
      of_steps.push_back(step.at(kind));
    }
    result[kind] = median(std::move(of_steps));
  }
  return result;
}

}  // namespace expedite::train
