#include "expedite/schedule/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "expedite/base/error.h"
#include "expedite/schedule/matching.h"

namespace expedite::schedule {
namespace {

using nlohmann::json;

/// FNV-1a, 64 bits.
class Hash {
 public:
  void add(int value) {
    for (int byte = 0; byte < 4; ++byte) {
      add_byte(static_cast<std::uint8_t>(static_cast<std::uint32_t>(value) >> (8 * byte)));
    }
  }
  void add(std::string_view text) {
    add(static_cast<int>(text.size()));
    for (const char c : text) {
      add_byte(static_cast<std::uint8_t>(c));
    }
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  void add_byte(std::uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3U; }

  std::uint64_t value_ = 0xcbf29ce484222325U;
};

std::uint64_t hash_of(const Channel& channel) {
  Hash hash;
  hash.add(channel.group->name);
  hash.add(static_cast<int>(channel.group->ranks.size()));
  for (const int rank : channel.group->ranks) {
    hash.add(rank);
  }
  hash.add(static_cast<int>(channel.stream));
  hash.add(channel.from);
  hash.add(channel.to);
  return hash.value();
}

using Channels = std::map<Channel, std::vector<TaskId>>;

Channels channels_of(const Schedule& schedule) {
  Channels channels;
  for (std::size_t id = 0; id < schedule.tasks.size(); ++id) {
    if (schedule.tasks[id].communication) {
      channels[channel_of(schedule, schedule.tasks[id])].push_back(static_cast<TaskId>(id));
    }
  }
  return channels;
}

std::vector<int> ranks_of(const Channel& channel) {
  return channel.of_messages() ? std::vector<int>{channel.from, channel.to} : channel.group->ranks;
}

std::string name_of(const Channel& channel) {
  return channel.of_messages() ? fmt::format("messages from rank {} to rank {} on stream {}", channel.from,
                                             channel.to, name_of(channel.stream))
                               : fmt::format("collectives of group {} on stream {}", channel.group->name,
                                             name_of(channel.stream));
}

std::string difference(const json& reference, int first, const json& other, int second) {
  const json& a = reference.at("tasks");
  const json none = json::array();
  const json& b = other.is_null() ? none : other.at("tasks");
  const auto place = [&](std::size_t i) {
    return fmt::format("number {} among the {}", i + 1, reference.at("name").get<std::string>());
  };
  const auto name = [](const json& task) { return task.at("name").get<std::string>(); };
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i >= a.size() || i >= b.size()) {
      const bool first_has_it = i < a.size();
      return fmt::format("{} is {} on rank {}, but rank {} has only {}: it lacks this one", place(i),
                         name(first_has_it ? a[i] : b[i]), first_has_it ? first : second,
                         first_has_it ? second : first, i);
    }
    if (a[i].at("key") != b[i].at("key")) {
      return fmt::format("{} is {} on rank {}, but {} on rank {}", place(i), name(a[i]), first, name(b[i]),
                         second);
    }
  }
  return {};
}

}  // namespace

std::vector<ChannelDigest> digest(const Schedule& schedule) {
  std::vector<ChannelDigest> digests;
  for (const auto& [channel, tasks] : channels_of(schedule)) {
    Hash hash;
    for (const TaskId id : tasks) {
      for (const int value : match_key(schedule.tasks[static_cast<std::size_t>(id)])) {
        hash.add(value);
      }
    }
    digests.push_back({hash_of(channel), hash.value(), std::ssize(ranks_of(channel))});
  }
  return digests;
}

std::optional<std::uint64_t> find_disagreement(std::span<const std::vector<ChannelDigest>> by_rank) {
  struct Seen {
    ChannelDigest first;
    std::int64_t ranks = 0;  // that have the same
  };
  std::map<std::uint64_t, Seen> seen;
  for (const std::vector<ChannelDigest>& digests : by_rank) {
    for (const ChannelDigest& each : digests) {
      Seen& known = seen.try_emplace(each.channel, Seen{each}).first->second;
      known.ranks += known.first == each ? 1 : 0;
    }
  }
  for (const std::vector<ChannelDigest>& digests : by_rank) {
    for (const ChannelDigest& each : digests) {
      if (const Seen& known = seen.at(each.channel); known.ranks != known.first.ranks) {
        return each.channel;
      }
    }
  }
  return std::nullopt;
}

std::string channel_text(const Schedule& schedule, std::uint64_t wanted) {
  for (const auto& [channel, tasks] : channels_of(schedule)) {
    if (hash_of(channel) != wanted) {
      continue;
    }
    json text = {{"name", name_of(channel)}, {"ranks", ranks_of(channel)}, {"tasks", json::array()}};
    for (const TaskId id : tasks) {
      const Task& task = schedule.tasks[static_cast<std::size_t>(id)];
      text["tasks"].push_back({{"key", match_key(task)},
                               {"name", fmt::format("task {} '{}' ({})", id, label(task),
                                                    name_of(task.communication->collective))}});
    }
    return text.dump();
  }
  return {};
}

std::string describe_disagreement(std::span<const std::string> by_rank) {
  std::vector<json> channels;
  for (const std::string& text : by_rank) {
    channels.push_back(text.empty() ? json() : json::parse(text));
  }
  const auto first = std::ranges::find_if(channels, [](const json& channel) { return !channel.is_null(); });
  require(first != channels.end(), "no rank has tasks in the channel");
  const auto first_rank = static_cast<int>(first - channels.begin());
  for (const int rank : first->at("ranks").get<std::vector<int>>()) {
    if (rank < 0 || rank >= static_cast<int>(channels.size())) {
      return fmt::format("rank {} communicates with rank {}, which does not exist", first_rank, rank);
    }
    std::string text = difference(*first, first_rank, channels[static_cast<std::size_t>(rank)], rank);
    if (!text.empty()) {
      return text;
    }
  }
  return fmt::format("the {} are not the same on all ranks", first->at("name").get<std::string>());
}

}  // namespace expedite::schedule
