// Ends badly, in the way its argument says; the test checks that the whole job ends, soon, with a message
// that names the rank to blame: an exception while others wait, or a rank that stops answering.
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "expedite/comm/collectives.h"
#include "expedite/comm/control_channel.h"
#include "expedite/comm/environment.h"
#include "expedite/comm/request.h"

namespace {

using namespace expedite::comm;  // NOLINT(google-build-using-namespace): a short program

void wait_for_ever(ControlChannel& control) {
  for (Backoff backoff;; backoff.sleep()) {
    control.poll();
  }
}

void run(std::string_view mode) {
  const MpiEnvironment environment;
  const auto world = Communicator::world();
  ControlChannel control(
      world, {.answer_limit = std::chrono::milliseconds(500), .report = [] { return "compute: idle"; }});
  const bool to_blame = world.rank() == 1;
  if (mode == "exception") {
    if (to_blame) {
      throw std::runtime_error("an exception on rank 1");
    }
    barrier(world);
  } else if (mode == "announced") {
    try {
      if (to_blame) {
        throw std::runtime_error("L3 mb0 experts forward: out of memory");
      }
    } catch (const std::exception& error) {
      control.announce_failure(error.what());
    }
    wait_for_ever(control);
  } else if (mode == "stopped") {
    barrier(world);
    if (to_blame) {
      std::raise(SIGSTOP);
    }
    if (world.rank() == 0) {
      control.report_stall("L3 mb0 dispatch forward is in flight for 60 s");
    }
    wait_for_ever(control);
  } else if (mode == "waiting") {
    const WaitHook hook([&](auto waited, const std::string& where) {
      control.poll();
      if (waited > std::chrono::milliseconds(500) && world.rank() == 0) {
        control.report_stall("group " + where + " has waited for 0.5 s");
      }
    });
    barrier(world);
    if (to_blame) {
      std::raise(SIGSTOP);
    }
    barrier(world);
  } else if (mode == "killed") {
    if (to_blame) {
      std::raise(SIGKILL);
    }
    barrier(world);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
