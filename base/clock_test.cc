#include "base/clock.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Clock, TheProcessBeganBeforeNowAndAfterTheBoot) {
  const double start = ProcessStartSeconds();
  EXPECT_GT(start, 0);
  // The start is rounded down to a tick of 10 ms, so it never lies ahead of the clock.
  EXPECT_LE(start, SecondsSinceBoot());
  EXPECT_EQ(start, ProcessStartSeconds());
}

}  // namespace
}  // namespace lockstep
