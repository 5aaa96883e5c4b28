#include "expedite/runtime/buffer_table.h"

#include <algorithm>
#include <utility>

#include "expedite/base/error.h"

namespace expedite::runtime {

Buffer& BufferTable::operator[](schedule::BufferId id) {
  const auto named_in = [id](const std::vector<schedule::BufferId>& list) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  require(named_in(task_.acquires) || named_in(task_.uses) || named_in(task_.releases),
          "{} touches buffer {}, which it neither acquires, uses nor releases", label(task_), id);
  Buffer& buffer = buffers_[static_cast<std::size_t>(id)];
  require(static_cast<bool>(buffer), "{} touches buffer {}, which is not held", label(task_), id);
  return buffer;
}

void BufferStore::acquire(schedule::BufferId id, Buffer buffer, const schedule::Task& task) {
  Buffer& slot = buffers_[static_cast<std::size_t>(id)];
  require(!slot, "{} acquires buffer {}, which is held already", label(task), id);
  slot = std::move(buffer);
}

void BufferStore::release(schedule::BufferId id, const schedule::Task& task) {
  Buffer& slot = buffers_[static_cast<std::size_t>(id)];
  require(static_cast<bool>(slot), "{} releases buffer {}, which is not held", label(task), id);
  slot = Buffer();
}

}  // namespace expedite::runtime
