// What an action that should fail says.
#pragma once

#include <concepts>
#include <string>

#include "expedite/base/error.h"

namespace expedite {

/// The message of the Error that `action` throws; "no error" without one.
[[nodiscard]] std::string error_of(const std::invocable auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace expedite
