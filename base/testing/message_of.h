// For tests: MessageOf() calls a function that must throw an Error, and returns the error's message.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace lockstep {

// Returns the message of the Error that `act` throws. Fails the test if `act` throws no Error, an Error with another
// status, or a message of several lines.
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
