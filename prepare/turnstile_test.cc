#include "prepare/turnstile.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

// Passes the items from `first` on through a Turnstile, in three threads. Item `fails` never passes: its action throws
// if `by_throwing`, and otherwise the item is closed. Returns the items that passed, in order.
std::vector<int64_t> PassAll(int64_t first, int64_t count, int64_t fails, bool by_throwing) {
  Turnstile turnstile(first);
  std::atomic<int64_t> next = first;
  std::vector<int64_t> passed;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&] {
        for (int64_t item; (item = next++) < first + count;) {
          if (item == fails && !by_throwing) {
            turnstile.Close(item);
            continue;
          }
          try {
            turnstile.Pass(item, [&] {
              if (item == fails) throw std::runtime_error("this one");
              passed.push_back(item);
            });
          } catch (const std::runtime_error&) {
            EXPECT_EQ(item, fails);
          }
        }
      });
    }
  }
  return passed;
}

TEST(Turnstile, KeepsTheOrder) {
  const std::vector<int64_t> passed = PassAll(7, 2000, -1, false);
  ASSERT_EQ(passed.size(), 2000);
  for (size_t i = 0; i < passed.size(); ++i) ASSERT_EQ(passed[i], static_cast<int64_t>(7 + i));
}

TEST(Turnstile, LetsNothingPassBehindWhatFailed) {
  for (const bool by_throwing : {false, true}) {
    EXPECT_EQ(PassAll(0, 500, 100, by_throwing).size(), 100);
    EXPECT_TRUE(PassAll(0, 500, 0, by_throwing).empty());
  }
}

}  // namespace
}  // namespace lockstep
