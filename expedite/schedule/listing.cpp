#include "expedite/schedule/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "expedite/schedule/role.h"
#include "expedite/schedule/verify.h"

namespace expedite::schedule {
namespace {

using nlohmann::json;

/// "0-3, 8": ascending numbers.
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) {
      ++end;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    if (end - i > 1) {
      text += fmt::format("-{}", numbers[end - 1]);
    }
    i = end;
  }
  return text;
}

/// "L3 mb0 chunks 0-1"; for the whole step: "step".
std::string purpose(const Task& task) {
  std::vector<std::string> parts;
  if (task.layer >= 0) {
    parts.push_back(fmt::format("L{}", task.layer));
  }
  if (task.micro_batch >= 0) {
    parts.push_back(fmt::format("mb{}", task.micro_batch));
  }
  if (task.chunk >= 0 && task.chunks > 1) {
    parts.push_back(fmt::format("{}s {}-{}", name_of(task.piece), task.chunk, task.chunk + task.chunks - 1));
  } else if (task.chunk >= 0) {
    parts.push_back(fmt::format("{} {}", name_of(task.piece), task.chunk));
  }
  return parts.empty() ? "step" : fmt::format("{}", fmt::join(parts, " "));
}

class Listing {
 public:
  explicit Listing(const Schedule& schedule) : schedule_(schedule) {}

  std::string text() {
    head();
    for (int i = 0; i < kStreams; ++i) {
      stream(static_cast<Stream>(i));
    }
    return std::move(text_);
  }

 private:
  static constexpr std::size_t kColumns = 5;
  using Row = std::array<std::string, kColumns>;

  void head() {
    text_ = fmt::format("rank {}: {} tasks, {} buffers\n", schedule_.rank, schedule_.tasks.size(),
                        schedule_.buffers.size());
    for (const Group& group : schedule_.groups) {
      text_ += fmt::format("group {}: rank{} {}\n", group.name, group.ranks.size() == 1 ? "" : "s",
                           ranges(group.ranks));
    }
    const MemoryForecast forecast = forecast_memory(schedule_);
    text_ += fmt::format("bytes at the peak, as expected: {}", forecast.total_peak);
    for (int i = 0; i < kMemoryCategories; ++i) {
      if (const std::int64_t bytes = forecast.peak[static_cast<std::size_t>(i)]; bytes > 0) {
        text_ += fmt::format("; {} {}", name_of(static_cast<MemoryCategory>(i)), bytes);
      }
    }
    text_ += "\n";
  }

  void stream(Stream stream) {
    std::vector<Row> rows;
    std::array<std::size_t, kColumns> widths{};
    for (std::size_t id = 0; id < schedule_.tasks.size(); ++id) {
      if (schedule_.tasks[id].stream == stream) {
        const Row& row = rows.emplace_back(row_of(id));
        for (std::size_t column = 0; column < kColumns; ++column) {
          widths[column] = std::max(widths[column], row[column].size());
        }
      }
    }
    if (rows.empty()) {
      return;
    }
    text_ += fmt::format("\n{}, {} task{}\n", name_of(stream), rows.size(), rows.size() == 1 ? "" : "s");
    for (const Row& row : rows) {
      std::string line = fmt::format("{:>{}}", row[0], widths[0] + 2);
      for (std::size_t column = 1; column < kColumns; ++column) {
        if (widths[column] > 0) {
          line += fmt::format("  {:<{}}", row[column], widths[column]);
        }
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text_ += line + "\n";
    }
  }

  [[nodiscard]] Row row_of(std::size_t id) const {
    const Task& task = schedule_.tasks[id];
    std::string how;
    if (task.communication) {
      const Communication& communication = *task.communication;
      how = fmt::format("{} {}", name_of(communication.collective),
                        schedule_.groups[static_cast<std::size_t>(communication.group)].name);
      if (communication.peer >= 0) {
        how += fmt::format(" rank {}", communication.peer);
      }
    }
    std::string held;
    add_buffers(held, "acquires ", task.acquires);
    add_buffers(held, "uses ", task.uses);
    add_buffers(held, "releases ", task.releases);
    if (!task.after.empty()) {
      how += fmt::format("{}after {}", how.empty() ? "" : ", ", fmt::join(task.after, ", "));
    }
    return {fmt::format("{}", id), fmt::format("{} {}", name_of(task.op), name_of(task.pass)), purpose(task),
            how, held};
  }

  void add_buffers(std::string& text, std::string_view verb, const std::vector<BufferId>& ids) const {
    std::string_view separator = text.empty() ? "" : "; ";
    for (const BufferId id : ids) {
      const LogicalBuffer& buffer = schedule_.buffers[static_cast<std::size_t>(id)];
      text += fmt::format("{}{}{}:{} {}", separator, verb, id, name_of(static_cast<Role>(buffer.role)),
                          buffer.expected_bytes);
      separator = ", ";
      verb = {};
    }
  }

  const Schedule& schedule_;
  std::string text_;
};

void add_piece(json& object, int chunk, int chunks, Piece piece) {
  if (chunk >= 0) {
    object["piece"] = name_of(piece);
    object["first"] = chunk;
    object["count"] = chunks;
  }
}

json task_json(const Schedule& schedule, std::size_t id) {
  const Task& task = schedule.tasks[id];
  json object = {{"id", id},
                 {"operation", name_of(task.op)},
                 {"pass", name_of(task.pass)},
                 {"stream", name_of(task.stream)},
                 {"label", label(task)},
                 {"after", task.after},
                 {"acquires", task.acquires},
                 {"uses", task.uses},
                 {"releases", task.releases}};
  if (task.layer >= 0) {
    object["layer"] = task.layer;
  }
  if (task.micro_batch >= 0) {
    object["micro_batch"] = task.micro_batch;
  }
  add_piece(object, task.chunk, task.chunks, task.piece);
  if (task.communication) {
    const Communication& communication = *task.communication;
    object["collective"] = name_of(communication.collective);
    object["group"] = schedule.groups[static_cast<std::size_t>(communication.group)].name;
    if (communication.peer >= 0) {
      object["peer"] = communication.peer;
    }
  }
  return object;
}

json buffer_json(const Schedule& schedule, std::size_t id) {
  const LogicalBuffer& buffer = schedule.buffers[id];
  json object = {{"id", id},
                 {"role", name_of(static_cast<Role>(buffer.role))},
                 {"category", name_of(buffer.category)},
                 {"expected_bytes", buffer.expected_bytes},
                 {"shared", buffer.shared}};
  if (buffer.layer >= 0) {
    object["layer"] = buffer.layer;
  }
  if (buffer.micro_batch >= 0) {
    object["micro_batch"] = buffer.micro_batch;
  }
  add_piece(object, buffer.chunk, 1, buffer.piece);
  return object;
}

}  // namespace

std::string listing(const Schedule& schedule) {
  return Listing(schedule).text();
}

json to_json(const Schedule& schedule) {
  const MemoryForecast forecast = forecast_memory(schedule);
  json peak = json::object();
  for (int i = 0; i < kMemoryCategories; ++i) {
    peak[std::string(name_of(static_cast<MemoryCategory>(i)))] = forecast.peak[static_cast<std::size_t>(i)];
  }
  json object = {{"rank", schedule.rank},
                 {"groups", json::array()},
                 {"expected_peak_bytes", forecast.total_peak},
                 {"expected_peak_bytes_by_category", peak},
                 {"buffers", json::array()},
                 {"tasks", json::array()}};
  for (const Group& group : schedule.groups) {
    object["groups"].push_back({{"name", group.name}, {"ranks", group.ranks}});
  }
  for (std::size_t id = 0; id < schedule.buffers.size(); ++id) {
    object["buffers"].push_back(buffer_json(schedule, id));
  }
  for (std::size_t id = 0; id < schedule.tasks.size(); ++id) {
    object["tasks"].push_back(task_json(schedule, id));
  }
  return object;
}

}  // namespace expedite::schedule
