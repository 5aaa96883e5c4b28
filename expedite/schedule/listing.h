// A schedule to read: as a table of one line per task, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "expedite/schedule/schedule.h"

namespace expedite::schedule {

/// Groups, expected peak of memory, then every stream's tasks in order, one a line: number, operation and
/// pass, what it is for, its collective, after which tasks, and the buffers that it acquires, uses and
/// releases, each with its number, role and expected bytes. Roles are those of StepWriter. Ids must be in
/// range.
[[nodiscard]] std::string listing(const Schedule& schedule);

/// The same; docs/schedule.md has the fields.
[[nodiscard]] nlohmann::json to_json(const Schedule& schedule);

}  // namespace expedite::schedule
