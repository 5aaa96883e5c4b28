#include "expedite/train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "expedite/base/error.h"

namespace expedite::train {
namespace {

/// How many bytes of the file a run that resumes after `step` keeps.
std::size_t kept_bytes(const std::string& text, std::int64_t step, const std::filesystem::path& file) {
  std::size_t begin = 0;
  for (std::int64_t line = 1; begin < text.size(); ++line) {
    const auto end = text.find('\n', begin);
    if (end == std::string::npos) {
      return begin;  // torn: its writer did not get to the end of the line
    }
    const auto json = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                            text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!json.is_object()) {
      require(end + 1 == text.size(), "{}:{}: is not a JSON object; repair or move the file before resuming",
              file.string(), line);
      return begin;
    }
    const auto found = json.find("step");
    if (found != json.end() && found->is_number() && found->get<double>() > static_cast<double>(step)) {
      return begin;
    }
    begin = end + 1;
  }
  return begin;
}

}  // namespace

MetricsWriter::MetricsWriter(std::filesystem::path file, std::optional<std::int64_t> resumed_step)
    : file_(std::move(file)) {
  descriptor_ = Descriptor(file_, O_RDWR | O_CREAT | O_APPEND, "write");
  std::size_t kept = 0;
  if (resumed_step) {
    std::ifstream stream(file_, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    require(stream.is_open() && !stream.bad(), "{}: cannot read: {}", file_.string(), std::strerror(errno));
    kept = kept_bytes(text, *resumed_step, file_);
  }
  require(ftruncate(descriptor_.number(), static_cast<off_t>(kept)) == 0, "{}: cannot shorten: {}",
          file_.string(), std::strerror(errno));
}

void MetricsWriter::append(const nlohmann::json& line) {
  require(line.is_object(), "{}: a line of metrics must be an object, not {}", file_.string(),
          line.type_name());
  constexpr int kOneLine = -1;
  const auto replace = nlohmann::json::error_handler_t::replace;  // text that is not UTF-8
  write_all(descriptor_, line.dump(kOneLine, ' ', false, replace) + "\n", file_);
}

}  // namespace expedite::train
