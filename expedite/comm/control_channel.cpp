#include "expedite/comm/control_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "expedite/base/error.h"
#include "expedite/comm/environment.h"

namespace expedite::comm {
namespace {

constexpr int kControlTag = 4;

void print_to_standard_error(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

// Small enough that MPI sends it without waiting for the receiver.
struct ControlChannel::Message {
  Kind kind = Kind::answer;
  int length = 0;
  std::array<char, 1000> text{};

  [[nodiscard]] std::string_view view() const {
    return {text.data(), static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(text.size())))};
  }
};

struct ControlChannel::Outgoing {
  std::unique_ptr<Message> message;
  Request request;
};

ControlChannel::ControlChannel(const Communicator& world, ControlOptions options)
    : communicator_(world.duplicate("control")),
      options_(std::move(options)),
      incoming_(std::make_unique<Message>()),
      answered_(static_cast<std::size_t>(world.size()), false),
      lowest_asker_(world.size()) {
  if (!options_.print) {
    options_.print = print_to_standard_error;
  }
  if (!options_.abort) {
    options_.abort = [](int code) { MPI_Abort(MPI_COMM_WORLD, code); };
  }
  post_receive();
}

ControlChannel::~ControlChannel() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && receive_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&receive_);
    MPI_Wait(&receive_, MPI_STATUS_IGNORE);
  }
  for (Outgoing& outgoing : outgoing_) {
    if (outgoing.request.pending()) {
      (void)outgoing.message.release();  // NOLINT(bugprone-unused-return-value): MPI may still read it
    }
  }
}

void ControlChannel::post_receive() {
  check(MPI_Irecv(incoming_.get(), sizeof(Message), MPI_BYTE, MPI_ANY_SOURCE, kControlTag,
                  communicator_.handle(), &receive_),
        "MPI_Irecv", "the control channel");
}

void ControlChannel::poll() {
  for (;;) {
    int arrived = 0;
    MPI_Status status;
    check(MPI_Test(&receive_, &arrived, &status), "MPI_Test", "the control channel");
    if (arrived == 0) {
      break;
    }
    const Message message = *incoming_;
    post_receive();
    handle(message, status.MPI_SOURCE);
  }
  std::erase_if(outgoing_, [](Outgoing& outgoing) { return outgoing.request.test(); });
}

void ControlChannel::handle(const Message& message, int source) {
  switch (message.kind) {
    case Kind::report_wanted:
      print_report();
      break;
    case Kind::failure:
      peer_failures_.emplace_back(message.view());
      if (options_.on_peer_failure) {
        options_.on_peer_failure(source, message.view());
      }
      break;
    case Kind::answer:
      answered_[static_cast<std::size_t>(source)] = true;
      return;
  }
  lowest_asker_ = std::min(lowest_asker_, source);
  send(Kind::answer, {}, source);
}

void ControlChannel::send(Kind kind, std::string_view text, int destination) {
  auto message = std::make_unique<Message>();
  message->kind = kind;
  message->length = static_cast<int>(std::min(text.size(), message->text.size()));
  std::memcpy(message->text.data(), text.data(), static_cast<std::size_t>(message->length));
  MPI_Request handle = MPI_REQUEST_NULL;
  check(MPI_Isend(message.get(), sizeof(Message), MPI_BYTE, destination, kControlTag, communicator_.handle(),
                  &handle),
        "MPI_Isend", "the control channel");
  outgoing_.push_back({std::move(message), Request(handle, "the control channel")});
}

void ControlChannel::report_stall(std::string_view reason) {
  print(reason);
  print_report();
  tell_all_and_abort(Kind::report_wanted, reason);
}

void ControlChannel::announce_failure(std::string_view text) {
  if (!repeats_a_peer(text)) {
    print(text);
  }
  tell_all_and_abort(Kind::failure, text);
}

bool ControlChannel::repeats_a_peer(std::string_view text) {
  if (communicator_.rank() == 0) {
    return false;
  }
  const std::string_view sent = text.substr(0, Message().text.size());
  const auto said = [&] { return std::ranges::find(peer_failures_, sent) != peer_failures_.end(); };
  const auto limit = std::chrono::steady_clock::now() + options_.answer_limit / 3;
  Backoff backoff;
  while (!said() && std::chrono::steady_clock::now() < limit) {
    poll();
    backoff.sleep();
  }
  return said();
}

void ControlChannel::tell_all_and_abort(Kind kind, std::string_view text) {
  std::fill(answered_.begin(), answered_.end(), false);
  answered_[static_cast<std::size_t>(communicator_.rank())] = true;
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    if (rank != communicator_.rank()) {
      send(kind, text, rank);
    }
  }
  if (await_answers() && kind == Kind::report_wanted) {
    for (std::size_t rank = 0; rank < answered_.size(); ++rank) {
      if (!answered_[rank]) {
        print(
            fmt::format("rank {} does not answer: it is stopped, dead or stuck outside communication", rank));
      }
    }
  }
  options_.abort(EXIT_FAILURE);
  std::abort();  // abort() must not return; nothing sensible is left to do
}

bool ControlChannel::await_answers() {
  using Clock = std::chrono::steady_clock;
  // A rank that yields to another waits longer, so that the other one's answers are complete.
  const auto limit = Clock::now() + options_.answer_limit;
  const auto yielding_limit = limit + options_.answer_limit;
  Backoff backoff;
  for (;;) {
    poll();
    const bool leads = lowest_asker_ > communicator_.rank();
    const bool complete =
        std::all_of(answered_.begin(), answered_.end(), [](bool answered) { return answered; });
    if ((leads && complete) || Clock::now() > (leads ? limit : yielding_limit)) {
      return leads;
    }
    backoff.sleep();
  }
}

void ControlChannel::print(std::string_view text) const {
  options_.print(fmt::format("[rank {}] {}\n", communicator_.rank(), text));
}

void ControlChannel::print_report() {
  if (std::exchange(reported_, true)) {
    return;
  }
  std::string lines;
  const std::string report = options_.report ? options_.report() : "no report";
  for (std::size_t begin = 0; begin < report.size();) {
    const std::size_t end = std::min(report.find('\n', begin), report.size());
    lines += fmt::format("[rank {}]   {}\n", communicator_.rank(), report.substr(begin, end - begin));
    begin = end + 1;
  }
  options_.print(lines);
}

}  // namespace expedite::comm
