#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "parapet/error.h"

namespace parapet::testing {

// That `action` throws an Error of this code whose message has all of these parts.
template <class Action>
void expect_error(ErrorCode code, std::initializer_list<std::string> parts, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "\"" << part << "\" is not in: " << error.what();
    }
    return;
  }
  ADD_FAILURE() << "no error; expected one that says " << ::testing::PrintToString(parts);
}

template <class Action>
void expect_refused(std::initializer_list<std::string> parts, const Action& action) {
  expect_error(ErrorCode::kInvalidArgument, parts, action);
}

}  // namespace parapet::testing
