#include "base/in_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

TEST(InThreads, DoesEachOnce) {
  for (const int threads : {0, 1, 3, 50}) {
    for (const int64_t count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> done(count);
      InThreads(threads, count, [&](int64_t i) { ++done[i]; });
      for (const auto& times : done) EXPECT_EQ(times, 1) << threads << " threads, " << count;
    }
  }
}

TEST(InThreads, ThrowsWhatTheFirstOfThoseThatThrewDid) {
  for (int round = 0; round < 200; ++round) {
    // act(2) fails only after act(3) has failed, but InThreads() must throw the exception of act(2).
    std::atomic<bool> failed{false};
    try {
      InThreads(4, 100, [&](int64_t i) {
        if (i == 3) {
          failed = true;
          throw std::runtime_error("3");
        }
        if (i != 2) return;
        while (!failed) std::this_thread::yield();
        throw std::runtime_error("2");
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "2");
    }
  }
}

}  // namespace
}  // namespace lockstep
