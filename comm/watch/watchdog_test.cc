// Tests the watchdog on ranks without faults. tests/fault_test.py tests it on ranks with faults.

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
    // There are enough collectives for several comparisons of the chains, and for some heartbeats.
    for (int i = 0; i < 5000; ++i) World().AllReduceSum(tensor, {}).Wait();
    watchdog.Watch(nullptr);
    // The rank that is first leaves while the others still work.
    watchdog.Leave();
    World().Barrier({});
  }
  EXPECT_EQ(said, 0);
}

// With first_elsewhere = 1 the watchdogs connect by TCP, as between machines. Here they use this machine's own
// addresses.
TEST(Watchdog, MeetsOverTheNetwork) {
  Watchdog watchdog(
      World(), /*first_elsewhere=*/1, Recorder(), [](const std::string&) {}, [] { return false; });
  World().Barrier({});
  watchdog.Leave();
  World().Barrier({});
}

}  // namespace
}  // namespace lockstep
