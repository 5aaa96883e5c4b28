#include "expedite/comm/clock.h"

#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>

#include "expedite/comm/collectives.h"
#include "expedite/comm/environment.h"
#include "expedite/comm/request.h"

namespace expedite::comm {
namespace {

constexpr int kClockTag = 3;

// Waits for a message by yielding: a sleep would be measured as part of the round trip.
std::int64_t receive_value(const Communicator& communicator, int source, bool asleep) {
  std::int64_t value = 0;
  MPI_Request handle = MPI_REQUEST_NULL;
  check(MPI_Irecv(&value, 1, MPI_INT64_T, source, kClockTag, communicator.handle(), &handle), "MPI_Irecv",
        "clock alignment");
  Request request(handle, "clock alignment");
  if (asleep) {
    request.wait();
  }
  while (!request.test()) {
    std::this_thread::yield();
  }
  return value;
}

void send_value(const Communicator& communicator, int destination, std::int64_t value) {
  MPI_Request handle = MPI_REQUEST_NULL;
  check(MPI_Isend(&value, 1, MPI_INT64_T, destination, kClockTag, communicator.handle(), &handle),
        "MPI_Isend", "clock alignment");
  Request request(handle, "clock alignment");
  while (!request.test()) {
    std::this_thread::yield();
  }
}

std::int64_t ask_rank_zero(const Communicator& communicator, int round_trips) {
  (void)receive_value(communicator, 0, true);  // this rank's turn
  std::int64_t best_trip = std::numeric_limits<std::int64_t>::max();
  std::int64_t offset = 0;
  for (int i = 0; i < round_trips; ++i) {
    const std::int64_t begin = steady_nanoseconds();
    send_value(communicator, 0, 0);
    const std::int64_t theirs = receive_value(communicator, 0, false);
    const std::int64_t trip = steady_nanoseconds() - begin;
    if (trip < best_trip) {
      best_trip = trip;
      offset = theirs - (begin + trip / 2);
    }
  }
  // Two ranks of one machine read the same clock; clocks of two machines start when those do, so an offset
  // that the error bound cannot tell from zero is zero.
  return std::abs(offset) <= best_trip / 2 + 1 ? 0 : offset;
}

}  // namespace

std::int64_t steady_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::int64_t estimate_clock_offset(const Communicator& communicator, int round_trips) {
  if (communicator.rank() != 0) {
    const std::int64_t offset = ask_rank_zero(communicator, round_trips);
    barrier(communicator);
    return offset;
  }
  for (int peer = 1; peer < communicator.size(); ++peer) {
    send_value(communicator, peer, 0);
    for (int i = 0; i < round_trips; ++i) {
      (void)receive_value(communicator, peer, false);
      send_value(communicator, peer, steady_nanoseconds());
    }
  }
  barrier(communicator);
  return 0;
}

}  // namespace expedite::comm
