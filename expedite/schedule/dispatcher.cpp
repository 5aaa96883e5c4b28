#include "expedite/schedule/dispatcher.h"

#include <algorithm>

namespace expedite::schedule {

std::string_view name_of(Dispatcher dispatcher) {
  switch (dispatcher) {
    case Dispatcher::alltoall:
      return "alltoall";
    case Dispatcher::zero_redundancy:
      return "zero_redundancy";
    case Dispatcher::hierarchical:
      return "hierarchical";
    case Dispatcher::hierarchical_dedup:
      return "hierarchical_dedup";
  }
  return "?";
}

std::optional<Dispatcher> parse_dispatcher(std::string_view name) {
  const auto* const found =
      std::ranges::find_if(kDispatchers, [&](Dispatcher each) { return name_of(each) == name; });
  return found == kDispatchers.end() ? std::nullopt : std::optional(*found);
}

std::vector<std::string> dispatcher_names() {
  std::vector<std::string> names;
  names.reserve(kDispatchers.size());
  for (const Dispatcher each : kDispatchers) {
    names.emplace_back(name_of(each));
  }
  return names;
}

}  // namespace expedite::schedule
