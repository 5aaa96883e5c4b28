#include "expedite/base/text.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace expedite {
namespace {

std::string_view last_part(std::string_view dotted) {
  const auto dot = dotted.rfind('.');
  return dot == std::string_view::npos ? dotted : dotted.substr(dot + 1);
}

}  // namespace

std::int64_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t columns = b.size() + 1;
  // distance[i * columns + j] is that of the first i bytes of a and the first j of b.
  std::vector<std::int64_t> distance((a.size() + 1) * columns);
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      std::int64_t& here = distance[i * columns + j];
      if (i == 0 || j == 0) {
        here = static_cast<std::int64_t>(i + j);
        continue;
      }
      const std::int64_t substitution = a[i - 1] == b[j - 1] ? 0 : 1;
      here = std::min({distance[(i - 1) * columns + j] + 1, distance[i * columns + j - 1] + 1,
                       distance[(i - 1) * columns + j - 1] + substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        here = std::min(here, distance[(i - 2) * columns + j - 2] + 1);
      }
    }
  }
  return distance.back();
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  std::string nearest;
  std::pair<std::int64_t, std::int64_t> best;  // distance, then the distance of the whole names
  for (const std::string& candidate : candidates) {
    const std::int64_t whole = edit_distance(name, candidate);
    const std::int64_t moved = 1 + edit_distance(last_part(name), last_part(candidate));
    const std::pair score(std::min(whole, moved), whole);
    if (nearest.empty() || score < best) {
      nearest = candidate;
      best = score;
    }
  }
  return nearest;
}

std::string join_choices(std::span<const std::string> choices) {
  std::string joined;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) {
      joined += i + 1 == choices.size() ? " or " : ", ";
    }
    joined += choices[i];
  }
  return joined;
}

}  // namespace expedite
