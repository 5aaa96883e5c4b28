// Lets ranks tell each other that something is wrong while their training communication is stuck.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "expedite/comm/communicator.h"
#include "expedite/comm/request.h"

namespace expedite::comm {

struct ControlOptions {
  std::chrono::milliseconds answer_limit{3000};  // how long a rank may take to answer
  std::function<std::string()> report;           // this rank's state, a line per stream
  std::function<void(std::string_view)> print;   // default: standard error, whole lines at once
  std::function<void(int)> abort;                // default: MPI_Abort; must not return
};

/// On a communicator of its own. Every rank polls it wherever it waits for communication; all calls on the
/// MPI thread.
class ControlChannel {
 public:
  /// Collective over `world`.
  ControlChannel(const Communicator& world, ControlOptions options);
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;
  /// Calls off its posted receive.
  ~ControlChannel();

  /// Answers what other ranks asked: prints this rank's report and acknowledges. Cheap when nobody asks.
  void poll();
  /// A communication waits too long: prints `reason` and the report, asks every rank for its own, names those
  /// that do not answer within the limit, and ends the job.
  [[noreturn]] void report_stall(std::string_view reason);
  /// This rank failed: prints `text`, makes every other rank say so too as soon as it polls, and ends the
  /// job.
  [[noreturn]] void announce_failure(std::string_view text);

 private:
  enum class Kind : int;
  struct Message;

  void post_receive();
  void handle(const Message& message, int source);
  void send(Kind kind, std::string_view text, int destination);
  [[noreturn]] void ask_and_abort(Kind kind, std::string_view text);
  void print_report();

  Communicator communicator_;
  ControlOptions options_;
  std::unique_ptr<Message> incoming_;
  Request receive_;
  std::vector<bool> answered_;
  bool reported_ = false;
  int stalled_by_ = -1;
};

}  // namespace expedite::comm
