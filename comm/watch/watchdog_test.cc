// Tests the watchdog of ranks that do well. tests/fault_test.py tests it where they do not.

#include "comm/watch/watchdog.h"

#include <ATen/ops/ones.h>
#include <signal.h>

#include <atomic>

#include "comm/testing/mpi_test_world.h"

namespace lockstep {
namespace {

TEST(Watchdog, LeavesRanksThatDoWellAlone) {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, nullptr);
  std::atomic<int> said = 0;
  for (int time = 0; time < 3; ++time) {
    Watchdog watchdog(
        World(), /*first_elsewhere=*/World().world_size(), Recorder(),
        [&](const std::string&) { ++said; }, [] { return false; });
    watchdog.SetLimits({.collective_s = 5, .heartbeat_s = 5});
    watchdog.Watch(&World());
    const at::Tensor tensor = at::ones({1000});
    // Enough for several chains to be compared, over some heartbeats.
    for (int i = 0; i < 5000; ++i) World().AllReduceSum(tensor, {}).Wait();
    watchdog.Watch(nullptr);
    // Whoever is first is gone while others still work.
    watchdog.Leave();
    World().Barrier({});
  }
  EXPECT_EQ(said, 0);
}

// Between machines it is TCP; one machine's own address will do to see that it works.
TEST(Watchdog, MeetsOverTheNetwork) {
  Watchdog watchdog(
      World(), /*first_elsewhere=*/1, Recorder(), [](const std::string&) {}, [] { return false; });
  World().Barrier({});
  watchdog.Leave();
  World().Barrier({});
}

}  // namespace
}  // namespace lockstep
