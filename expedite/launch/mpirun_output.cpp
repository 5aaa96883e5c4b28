#include "expedite/launch/mpirun_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <regex>
#include <utility>

namespace expedite::launch {
namespace {

/// The line above and below each of Open MPI's messages.
bool is_ruler(const std::string& line) {
  constexpr std::size_t kLength = 74;
  return line.size() >= kLength && line.find_first_not_of('-') == std::string::npos;
}

/// Lines of Open MPI's that stand alone and say nothing to act on.
bool is_noise(const std::string& line) {
  static const std::regex kNoise(
      R"(^\[[^\]]+:\d+\] (\d+ more process(es)? ha(s|ve) sent help message)"
      R"(|Set MCA parameter "orte_base_help_aggregate")"
      R"(|PMIX ERROR: .*gds_ds\d+)"
      R"(|\[\[\d+,\d+\],\d+\] ORTE_ERROR_LOG: .*/show_help\.c at)"  // a banner that could not be shown
      R"(|Read -1, expected \d+, errno = 1$))"                      // of CMA in a container; it falls back
      R"(|^mpirun: (killing job|Forwarding signal \d+ to job))"
      R"(|setpgid failed)");
  return std::regex_search(line, kNoise);
}

/// Messages that repeat what a rank has said, or are about hardware that this machine does not have.
constexpr std::array<std::string_view, 9> kDropped = {
    "MPI_ABORT was invoked on rank",
    "An MPI communication peer process has unexpectedly disconnected",
    "Primary job  terminated normally, but",
    "messaging module\nwas unable to find any relevant network interfaces",
    "WARNING: There was an error initializing an OpenFabrics device",
    "No OpenFabrics connection schemes reported",
    "infiniband ports on a device\nare not used by default",
    "CMA support is\nnot available due to restrictive ptrace settings",
    "setpgid"};

/// What of a message about a rank's end is worth a line; nothing for another message.
std::optional<std::string> death(const std::string& text, bool told) {
  static const std::regex kSignal(
      R"(process rank (\d+) with PID (\d+) on\s+node (\S+) exited on\s+signal (\d+)(?: \(([^)]*)\))?)");
  static const std::regex kStatus(
      R"(exited with non-zero status(?:.|\n)*\[\[\d+,\d+\],(\d+)\]\s+Exit code:\s+(\d+))");
  static const std::regex kImproper(
      R"(due to process rank (\d+) with PID (\d+) on\s+node (\S+) exiting improperly)");
  std::smatch found;
  if (std::regex_search(text, found, kSignal)) {
    const std::string name = found[5].matched ? fmt::format(" ({})", found.str(5)) : std::string();
    return fmt::format("[rank {}] died of signal {}{}: process {} on {}", found.str(1), found.str(4), name,
                       found.str(2), found.str(3));
  }
  if (std::regex_search(text, found, kStatus)) {
    return told ? std::string()
                : fmt::format("[rank {}] ended with exit status {}", found.str(1), found.str(2));
  }
  if (std::regex_search(text, found, kImproper)) {
    return told ? std::string()
                : fmt::format("[rank {}] ended before the job did: process {} on {}", found.str(1),
                              found.str(2), found.str(3));
  }
  return std::nullopt;
}

}  // namespace

void MpirunOutput::add(std::string_view text) {
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    line(partial_ + std::string(text.substr(0, end)));
    partial_.clear();
    text.remove_prefix(end + 1);
  }
  partial_ += text;
}

void MpirunOutput::finish() {
  if (!partial_.empty()) {
    line(std::exchange(partial_, {}));
  }
  if (in_block_) {  // no message of Open MPI's: it would have had an end
    pass_block();
  }
}

void MpirunOutput::line(const std::string& text) {
  constexpr std::size_t kLongest = 60;  // lines of a message
  if (is_ruler(text)) {
    in_block_ ? end_block() : block_.clear();
    in_block_ = !in_block_;
  } else if (in_block_) {
    block_.push_back(text);
    if (block_.size() > kLongest) {
      pass_block();
    }
  } else if (!is_noise(text)) {
    told_ = told_ || text.starts_with("[rank ");
    sink_(text);
  }
}

void MpirunOutput::end_block() {
  const std::string text = fmt::format("{}", fmt::join(block_, "\n"));
  if (const auto sentence = death(text, told_)) {
    if (!sentence->empty()) {
      sink_(*sentence);
    }
  } else if (std::ranges::none_of(
                 kDropped, [&](std::string_view known) { return text.find(known) != std::string::npos; })) {
    for (const std::string& each : block_) {
      sink_(each);
    }
  }
  block_.clear();
}

void MpirunOutput::pass_block() {
  sink_(std::string(80, '-'));
  for (const std::string& each : block_) {
    sink_(each);
  }
  block_.clear();
  in_block_ = false;
}

}  // namespace expedite::launch
