// Errors: one exception type whose text says what happened, where, and what to do about it.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace expedite {

/// Everything the library throws on bad input or a failed call. The library never exits by itself.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws an Error with a formatted message: what happened, where (rank, layer, file, field), what to do.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// fail() unless `condition` holds. The arguments are evaluated either way: keep them cheap.
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]] {
    fail(format, std::forward<Args>(args)...);
  }
}

}  // namespace expedite
