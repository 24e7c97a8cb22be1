#include "base/work_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

TEST(WorkAhead, MakesEachValueOnce) {
  std::atomic<int> made = 0;
  WorkAhead work(3, [&](const std::string& key) {
    ++made;
    return key + key;
  });
  for (int i = 0; i < 100; ++i) work.Begin(std::to_string(i));
  std::vector<std::thread> takers;
  for (int t = 0; t < 4; ++t) {
    takers.emplace_back([&] {
      for (int i = 0; i < 120; ++i) {
        EXPECT_EQ(work.Take(std::to_string(i)), std::to_string(i) + std::to_string(i));
      }
    });
  }
  for (std::thread& taker : takers) taker.join();
  work.Begin("5");
  EXPECT_EQ(work.Take("5"), "55");
  EXPECT_EQ(made, 120);
}

TEST(WorkAhead, WorksInThreadsBeforeItIsAsked) {
  std::latch both(2);  // opens if two values are being made at once
  WorkAhead work(2, [&](const std::string& key) {
    both.arrive_and_wait();
    return key;
  });
  work.Begin("a");
  work.Begin("b");
  EXPECT_EQ(work.Take("b"), "b");
}

// The only thread is busy, so the caller makes what it asks for.
TEST(WorkAhead, NobodyWaitsForWhatNoThreadHasBegun) {
  std::latch is_busy(1), ends(1);
  WorkAhead work(1, [&](const std::string& key) {
    if (key == "long") {
      is_busy.count_down();
      ends.wait();
    }
    return key;
  });
  work.Begin("long");
  is_busy.wait();
  work.Begin("short");
  EXPECT_EQ(work.Take("short"), "short");
  ends.count_down();
  EXPECT_EQ(work.Take("long"), "long");
}

TEST(WorkAhead, ThrowsWhatMakingThrows) {
  WorkAhead work(1, [](const std::string& key) -> std::string { throw std::runtime_error(key); });
  work.Begin("a");
  EXPECT_THROW(work.Take("a"), std::runtime_error);
  EXPECT_THROW(work.Take("a"), std::runtime_error);
  EXPECT_THROW(work.Take("b"), std::runtime_error);
}

TEST(WorkAhead, WaitsAtItsEndForWhatIsBegun) {
  std::atomic<bool> made = false;
  std::latch is_busy(1);
  {
    WorkAhead work(1, [&](const std::string& key) {
      is_busy.count_down();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      made = true;
      return key;
    });
    work.Begin("a");
    is_busy.wait();
  }
  EXPECT_TRUE(made);
}

TEST(WorkAhead, WithoutThreadsTheCallerMakesAll) {
  WorkAhead work(0, [](const std::string& key) { return key; });
  work.Begin("a");
  EXPECT_EQ(work.Take("a"), "a");
}

}  // namespace
}  // namespace lockstep
