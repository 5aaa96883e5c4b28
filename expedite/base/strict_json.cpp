#include "expedite/base/strict_json.h"

#include <set>
#include <span>
#include <vector>

#include "expedite/base/error.h"
#include "expedite/base/posix_file.h"

namespace expedite {

using nlohmann::json;

json parse_strict_json(std::string_view text, const std::string& where, int max_depth) {
  std::vector<std::set<std::string>> keys_of_open_objects;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys_of_open_objects.emplace_back();
        [[fallthrough]];
      case json::parse_event_t::array_start:
        require(depth < max_depth, "{} nests deeper than {} levels", where, max_depth);
        break;
      case json::parse_event_t::object_end:
        keys_of_open_objects.pop_back();
        break;
      case json::parse_event_t::key:
        require(keys_of_open_objects.back().insert(parsed.get<std::string>()).second,
                "{} has the key {} twice", where, excerpt(parsed));
        break;
      default:
        break;
    }
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::exception& error) {
    fail("{} is not valid JSON: {}", where, error.what());
  }
}

json read_strict_json(const std::filesystem::path& path) {
  constexpr std::int64_t kMaxBytes = 100'000'000;
  constexpr int kMaxDepth = 32;
  const PosixFile file = PosixFile::open(path);
  const std::int64_t size = file.size();
  require(size <= kMaxBytes, "{} has {} bytes, too many for a JSON description", path.string(), size);
  std::string text(size, ' ');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return parse_strict_json(text, path.string(), kMaxDepth);
}

std::string to_string(const Excerpt& excerpt) {
  constexpr std::size_t kLength = 80;
  std::string text = excerpt.value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kLength) {
    text.resize(kLength);
    text += "...";
  }
  return text;
}

}  // namespace expedite
