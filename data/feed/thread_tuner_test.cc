#include "data/feed/thread_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockstep {
namespace {

// Simulates a loader second by second. Each sample takes `cpu_s` seconds of a core and `disk_s` seconds of waiting. The
// machine has `cores` cores, and the model takes at most `wanted` samples a second.
struct Machine {
  double cores;
  double cpu_s;
  double disk_s;
  double wanted;
  std::minstd_rand random{1};

  double Rate(int threads) const {
    return std::min({cores / cpu_s, threads / (cpu_s + disk_s), wanted});
  }

  ThreadTuner::Window Run(int threads) {
    // The number of samples in a second varies at random by up to 4 % in both directions.
    const double noise = 1 + 0.04 * (2.0 * random() / std::minstd_rand::max() - 1);
    const double rate = Rate(threads) * noise;
    const bool waits = rate < wanted * noise;
    // If the model waits for samples, all threads are busy all the time.
    const double busy = waits ? threads : std::min<double>(threads, rate * (cpu_s + disk_s));
    return {.seconds = 1,
            .samples = static_cast<int64_t>(rate),
            .reading_s = busy,
            .waiting_s = waits ? 0.3 : 0};
  }
};

int ThreadsAfter(Machine machine, int begin, int most, int windows = 200) {
  ThreadTuner tuner(begin, most);
  for (int i = 0; i < windows; ++i) tuner.Add(machine.Run(tuner.threads()));
  return tuner.threads();
}

constexpr double kUnlimited = 1e9;

TEST(ThreadTuner, StaysWithTheCoresWhereTheyAreTheLimit) {
  Machine machine{.cores = 8, .cpu_s = 1e-3, .disk_s = 0, .wanted = kUnlimited};
  ThreadTuner tuner(8, 32);
  int windows_with_more = 0;
  for (int i = 0; i < 210; ++i) {
    tuner.Add(machine.Run(tuner.threads()));
    windows_with_more += tuner.threads() > 8 ? 1 : 0;
    ASSERT_LE(tuner.threads(), 12);
  }
  EXPECT_GT(windows_with_more, 0) << "nothing was tried";
  EXPECT_LE(windows_with_more, 11) << "a trial in 20 windows is enough";
}

TEST(ThreadTuner, GrowsWhereThreadsWaitForADisk) {
  const Machine machine{.cores = 4, .cpu_s = 1e-3, .disk_s = 5e-3, .wanted = kUnlimited};
  EXPECT_GE(machine.Rate(ThreadsAfter(machine, 4, 64)), 0.85 * machine.Rate(64));
  EXPECT_GE(machine.Rate(ThreadsAfter(machine, 1, 64)), 0.85 * machine.Rate(64));
}

TEST(ThreadTuner, NeverTakesMoreThanItMay) {
  EXPECT_EQ(ThreadsAfter({.cores = 4, .cpu_s = 1e-4, .disk_s = 1, .wanted = kUnlimited}, 4, 13),
            13);
  EXPECT_EQ(ThreadsAfter({.cores = 4, .cpu_s = 1e-4, .disk_s = 1, .wanted = kUnlimited}, 1, 1), 1);
}

TEST(ThreadTuner, LaysOffThreadsThatIdleAndTakesThemBack) {
  Machine machine{.cores = 16, .cpu_s = 1e-3, .disk_s = 0, .wanted = 3000};
  const int few = ThreadsAfter(machine, 16, 64);
  EXPECT_GE(few, 4);
  EXPECT_LE(few, 6);
  ThreadTuner tuner(16, 64);
  for (int i = 0; i < 100; ++i) tuner.Add(machine.Run(tuner.threads()));
  ASSERT_EQ(tuner.threads(), few);
  machine.wanted = 12'000;
  for (int i = 0; i < 50; ++i) tuner.Add(machine.Run(tuner.threads()));
  EXPECT_GE(machine.Rate(tuner.threads()), 12'000);
}

TEST(ThreadTuner, KeepsOneThreadThatHasNothingToDo) {
  EXPECT_EQ(ThreadsAfter({.cores = 4, .cpu_s = 1e-6, .disk_s = 0, .wanted = 1}, 4, 16), 1);
}

// Checks that the tuner keeps 4 threads if training waits although the threads are idle, which happens if the host runs
// ahead of its GPU. More threads would not help.
TEST(ThreadTuner, DoesNotGrowWhereThreadsIdle) {
  ThreadTuner tuner(4, 64);
  for (int i = 0; i < 100; ++i) {
    tuner.Add({.seconds = 1, .samples = 100, .reading_s = 1, .waiting_s = 0.6});
    ASSERT_EQ(tuner.threads(), 4);
  }
}

}  // namespace
}  // namespace lockstep
