// Lets ranks tell each other that something is wrong while their training communication is stuck.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "expedite/comm/communicator.h"
#include "expedite/comm/request.h"

namespace expedite::comm {

struct ControlOptions {
  /// How long another rank may take to answer before it is named as silent.
  std::chrono::milliseconds answer_limit{3000};
  /// This rank's state, a line per stream; what a stalled rank asks of all.
  std::function<std::string()> report = {};
  /// Another rank announced its failure: the last chance to flush files, before it ends the job.
  std::function<void(int rank, std::string_view text)> on_peer_failure = {};
  /// Default: standard error, in one write.
  std::function<void(std::string_view text)> print = {};
  /// Default: MPI_Abort. Must not return.
  std::function<void(int code)> abort = {};
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
  /// A communication waits too long: prints `reason` and this rank's report, asks every rank for its own,
  /// names those that do not answer within the limit, and ends the job.
  [[noreturn]] void report_stall(std::string_view reason);
  /// This rank failed: prints `text` (unless a rank says the same: most mistakes are every rank's), tells the
  /// other ranks, gives them the answer limit to react, and ends the job.
  [[noreturn]] void announce_failure(std::string_view text);

 private:
  enum class Kind : int { report_wanted, failure, answer };
  struct Message;
  struct Outgoing;

  void post_receive();
  void handle(const Message& message, int source);
  void send(Kind kind, std::string_view text, int destination);
  [[noreturn]] void tell_all_and_abort(Kind kind, std::string_view text);
  /// Waits a little for another rank's failure with the same text; never on rank 0.
  [[nodiscard]] bool repeats_a_peer(std::string_view text);
  /// False when a rank below this one leads the end of the job instead.
  [[nodiscard]] bool await_answers();
  void print(std::string_view text) const;
  void print_report();

  Communicator communicator_;
  ControlOptions options_;
  std::unique_ptr<Message> incoming_;
  MPI_Request receive_ = MPI_REQUEST_NULL;
  std::vector<Outgoing> outgoing_;
  std::vector<bool> answered_;  // by rank
  std::vector<std::string> peer_failures_;
  bool reported_ = false;
  int lowest_asker_;  // rank
};

}  // namespace expedite::comm
