// What an action complained about, and whether it said what it should.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "expedite/base/error.h"

namespace expedite {

/// The message of the Error that `action` throws; "no error" when it throws none. Other exceptions pass
/// through.
template <typename Action>
std::string error_text(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Whether `text` has every one of `parts` in it.
inline testing::AssertionResult mentions(const std::string& text,
                                         std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (text.find(part) == std::string::npos) {
      return testing::AssertionFailure() << '"' << text << "\" does not mention \"" << part << '"';
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace expedite
