// GpuReader: reads through NVML what GPUs are doing, once for each call of Read().
//
// Promise: a value that the driver or the container does not report is missing in a reading. A GPU that NVML does not
// find is missing, too. In both cases no error is thrown.
//
// Invariants:
//   1. Only one thread may use a reader. A call of the driver can take milliseconds; if the driver is busy, the call
//      can take seconds.
//   2. After `stop` was requested, the reader begins no further call of the driver. A caller therefore waits for at
//      most one call.
//   3. Rates (PCIe, NVLink) are computed from the driver's counters in two readings, so the first reading has no rates.
//      There is one exception: if the driver has no PCIe counters, each reading measures the PCIe rates by itself.
//
// what can fail -> what the caller sees -> the test that shows it (tests/machine_test.py)
//   there is no driver -> the reading has no GPUs -> test_watch_without_a_driver
//   the driver lacks a function -> the field is missing -> test_an_old_driver
//   a call fails -> the field is missing -> test_errors_leave_fields_out
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "observe/machine/machine_reading.h"

namespace lockstep {

// A process of a job, and the GPU on which the process computes.
struct GpuUser {
  std::string uuid;  // the GPU's UUID, as NVML writes it: "GPU-..."
  int pid = 0;
  int rank = 0;  // the process's rank
};

class GpuReader {
 public:
  // Makes a reader of the GPUs of `users`, or of all GPUs of the machine if `users` has no value. Does not call the
  // driver.
  explicit GpuReader(std::optional<std::vector<GpuUser>> users);
  ~GpuReader();
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;

  // Returns a reading of each GPU, in NVML's order. If `stop` is requested during the call, values may be missing.
  std::vector<GpuReading> Read(const std::stop_token& stop);

 private:
  class Gpu;

  void Find(const std::stop_token& stop);

  std::optional<std::vector<GpuUser>> users_;
  bool has_searched_ = false;
  std::vector<std::unique_ptr<Gpu>> gpus_;
};

}  // namespace lockstep
