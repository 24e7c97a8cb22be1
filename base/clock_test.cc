#include "base/clock.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Clock, TheProcessBeganBeforeNowAndAfterTheBoot) {
  const double start = ProcessStartSeconds();
  EXPECT_GT(start, 0);
  // The start time is rounded down to a tick of 10 ms, so it is never later than the current time.
  EXPECT_LE(start, SecondsSinceBoot());
  EXPECT_EQ(start, ProcessStartSeconds());
}

}  // namespace
}  // namespace lockstep
