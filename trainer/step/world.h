// World: gives a rank its device, its communicators, and its place among the ranks that train together.
#pragma once

#include <c10/core/Device.h>

#include "comm/communicator.h"
#include "comm/watch/watchdog.h"

namespace lockstep {

struct World {
  at::Device device;                 // what this rank computes on
  Communicator& communicator;        // for tensors of `device`
  Communicator& host;                // for CPU tensors; the same one where `device` is the CPU
  int cores = 1;                     // that this rank's threads have to themselves
  int local_rank = 0;                // among the ranks on this machine
  int local_ranks = 1;
  FlightRecorder* flight = nullptr;  // these two: null for a rank that is alone
  Watchdog* watchdog = nullptr;

  int rank() const { return host.rank(); }
  int size() const { return host.world_size(); }
};

}  // namespace lockstep
