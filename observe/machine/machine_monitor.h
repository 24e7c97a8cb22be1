// MachineMonitor: a thread that reads what the machine's GPUs and host are doing, and keeps the newest reading for the
// thread that trains.
//
// Promise: training never waits for the monitor (base/mailbox.h). If the driver is slow, the reading comes late.
//
// Invariants:
//   1. The first reading comes after one period, or after 1 s if the period is longer than 1 s. The first reading
//      cannot come at once, because rates and the use of cores are differences between two readings.
//   2. The destructor waits for at most one call of the driver.
//
// what can fail -> what the caller sees -> the test that shows it (tests/machine_test.py)
//   the driver takes 200 ms for each call -> the run makes the same steps and events -> test_a_slow_driver
//   calls of the driver fail, or the driver lacks functions -> see observe/machine/gpu_reader.h
//   memory runs out while the thread reads -> there are no further readings, and the run goes on -> (none)
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/mailbox.h"
#include "observe/machine/gpu_reader.h"
#include "observe/machine/host_reader.h"
#include "observe/machine/machine_reading.h"

namespace lockstep {

// Returns a reading of the machine. The rates and the use of cores are computed over the time since the previous call
// with these readers.
MachineReading ReadMachine(HostReader& host, GpuReader& gpus, const std::stop_token& stop);

class MachineMonitor {
 public:
  // Starts the thread, which reads the GPUs of `users`, or all GPUs of the machine if `users` has no value. `every_s`
  // is the time between two readings in seconds, and must be greater than 0.
  MachineMonitor(std::optional<std::vector<GpuUser>> users, double every_s);
  ~MachineMonitor();
  MachineMonitor(const MachineMonitor&) = delete;
  MachineMonitor& operator=(const MachineMonitor&) = delete;

  // Returns the newest reading, or null if there was no reading since the last call. Never waits.
  std::unique_ptr<MachineReading> Take() { return newest_.Take(); }

 private:
  void Run(const std::stop_token& stop);

  std::optional<std::vector<GpuUser>> users_;
  double every_s_;
  Mailbox<MachineReading> newest_;
  std::jthread thread_;
};

}  // namespace lockstep
