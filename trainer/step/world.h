// World: holds a rank's device, its communicators, and its place among the ranks that train together.
#pragma once

#include <c10/core/Device.h>

#include "comm/communicator.h"
#include "comm/watch/watchdog.h"

namespace lockstep {

struct World {
  at::Device device;           // the device on which this rank computes
  Communicator& communicator;  // runs collectives on tensors of `device`
  // Runs collectives on CPU tensors. It is the same object as `communicator` if `device` is the CPU.
  Communicator& host;
  int cores = 1;                     // how many CPU cores this rank's threads have to themselves
  int local_rank = 0;                // this rank's number among the ranks of its machine
  int local_ranks = 1;               // how many ranks its machine has
  int local_cores = 1;               // how many cores these ranks have together
  FlightRecorder* flight = nullptr;  // `flight` and `watchdog` are null if the job has one rank
  Watchdog* watchdog = nullptr;

  int rank() const { return host.rank(); }
  int size() const { return host.world_size(); }
};

}  // namespace lockstep
