#include "expedite/comm/machine.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <fstream>
#include <string>

#include "expedite/comm/collectives.h"

namespace expedite::comm {
namespace {

std::string this_machine() {
  std::string started;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), started);
  if (started.empty()) {
    std::array<char, HOST_NAME_MAX + 1> host{};
    gethostname(host.data(), host.size() - 1);
    started = host.data();
  }
  return started;
}

}  // namespace

std::vector<int> ranks_of_machine(const Communicator& communicator) {
  const std::vector<std::string> machines = all_gather_text(communicator, this_machine());
  std::vector<int> ranks;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    if (machines[static_cast<std::size_t>(rank)] == machines[static_cast<std::size_t>(communicator.rank())]) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

}  // namespace expedite::comm
