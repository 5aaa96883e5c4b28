// Which ranks share a machine.
#pragma once

#include <vector>

#include "expedite/comm/communicator.h"

namespace expedite::comm {

/// The ranks on this rank's machine, ascending, with this one. The nodes of a lab are one machine, which
/// shows in that it was started once. Collective.
[[nodiscard]] std::vector<int> ranks_of_machine(const Communicator& communicator);

}  // namespace expedite::comm
