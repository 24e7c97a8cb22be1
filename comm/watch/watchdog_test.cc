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
        [&](const std::string&, bool) { ++said; }, [] { return false; });
    watchdog.SetLimits({.collective_s = 5, .heartbeat_s = 5});
    watchdog.Watch(&World());
    const at::Tensor tensor = at::ones({1000});
    // 5000 collectives are enough for four comparisons of the chains (one for each 1024 collectives).
    for (int i = 0; i < 5000; ++i) World().AllReduceSum(tensor, {}).Wait();
    watchdog.Watch(nullptr);
    // The rank that comes here first leaves while the other ranks still make collectives.
    watchdog.Leave();
    World().Barrier({});
  }
  EXPECT_EQ(said, 0);
}

// Checks that watchdogs can connect by TCP. With first_elsewhere = 1 they use TCP, as between machines, although all
// ranks are on this machine.
TEST(Watchdog, MeetsOverTheNetwork) {
  Watchdog watchdog(
      World(), /*first_elsewhere=*/1, Recorder(), [](const std::string&, bool) {},
      [] { return false; });
  World().Barrier({});
  watchdog.Leave();
  World().Barrier({});
}

}  // namespace
}  // namespace lockstep
