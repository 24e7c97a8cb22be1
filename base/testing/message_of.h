// For tests: MessageOf() calls a function that must throw an Error, and returns the error's message.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace lockstep {

// The message of the Error that `act` throws. Fails the test where it throws none, one of another
// status, or one of several lines.
template <typename Act>
std::string MessageOf(ExitStatus status, const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status);
    EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("\n")));
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

template <typename Act>
std::string DataErrorOf(const Act& act) {
  return MessageOf(ExitStatus::kData, act);
}

}  // namespace lockstep
