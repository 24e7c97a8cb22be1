// MachineMonitor: a thread that reads what the machine's GPUs and host are doing, and keeps the newest reading for the
// thread that trains.
//
// Promise: training waits for nothing of it. The two threads share one pointer, which each exchanges in one atomic
// operation, and no lock; a reading that the driver takes long for comes late, and the newest replaces one that nobody
// took.
//
// Invariants:
//   1. A reading is owned by the thread that has exchanged it last.
//   2. The first reading comes after a period, but not later than after a second: rates and the cores' use need one.
//   3. The destructor waits for one call of the driver at most.
//
// what can fail -> what the caller sees -> the test that shows it (tests/machine_test.py)
//   the driver takes 200 ms for each call -> the run has the same steps and events -> test_a_slow_driver
//   calls fail, or are missing -> observe/machine/gpu_reader.h
//   memory runs out while it reads -> no further readings; the run goes on
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "observe/machine/gpu_reader.h"
#include "observe/machine/machine_reading.h"

namespace lockstep {

class MachineMonitor {
 public:
  // `users`: those whose GPUs are read; no value: all of the machine. `every_s`: seconds between two readings, more
  // than 0.
  MachineMonitor(std::optional<std::vector<GpuUser>> users, double every_s);
  ~MachineMonitor();
  MachineMonitor(const MachineMonitor&) = delete;
  MachineMonitor& operator=(const MachineMonitor&) = delete;

  // The newest reading, once; null: there has been none since the last call. Never waits.
  std::unique_ptr<MachineReading> Take();

 private:
  void Run(const std::stop_token& stop);

  std::optional<std::vector<GpuUser>> users_;
  double every_s_;
  std::atomic<MachineReading*> newest_ = nullptr;
  std::jthread thread_;
};

}  // namespace lockstep
