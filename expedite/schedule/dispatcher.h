// How token rows travel to the ranks of their experts and back: the algorithms there are, and their names.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace expedite::schedule {

enum class Dispatcher : std::uint8_t {
  alltoall,            // flat: one row per expert copy
  zero_redundancy,     // one row per token and destination rank, expanded and summed there (MindSpore)
  hierarchical,        // every token once to every other node, then inside the node (Pangu, MindSpore)
  hierarchical_dedup,  // every token once to each other node that wants it, then inside the node
};
/// Simpler before more involved.
inline constexpr std::array kDispatchers = {Dispatcher::alltoall, Dispatcher::zero_redundancy,
                                            Dispatcher::hierarchical, Dispatcher::hierarchical_dedup};

/// As users write it: "alltoall", "zero_redundancy", "hierarchical" or "hierarchical_dedup".
[[nodiscard]] std::string_view name_of(Dispatcher dispatcher);

/// The dispatcher of that name; nothing when there is none.
[[nodiscard]] std::optional<Dispatcher> parse_dispatcher(std::string_view name);

/// The names of all, for options and messages.
[[nodiscard]] std::vector<std::string> dispatcher_names();

}  // namespace expedite::schedule
