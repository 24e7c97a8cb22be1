// GpuReader: reads, again and again, what GPUs are doing, through NVML.
//
// Promise: a value that this driver or container does not tell is left out of a reading, and so is a GPU that NVML does
// not find. Nothing is thrown for either.
//
// Invariants:
//   1. One thread uses it. A call of the driver takes up to milliseconds, of a driver that is busy seconds.
//   2. After `stop` no further call of the driver begins, so a caller waits for one call at most.
//   3. Rates (PCIe, NVLink) are counted from one reading to the next, so the first reading has none.
//
// what can fail -> what the caller sees -> the test that shows it (tests/machine_test.py)
//   no driver -> no GPUs -> test_watch_without_a_driver
//   a function that the driver lacks -> the field is left out -> test_an_old_driver
//   a call that fails -> the field is left out -> test_errors_leave_fields_out
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "observe/machine/machine_reading.h"

namespace lockstep {

// A process of a job and the GPU that it computes on.
struct GpuUser {
  std::string uuid;  // of the GPU, as NVML writes it: "GPU-..."
  int pid = 0;
};

class GpuReader {
 public:
  // Reads the GPUs of `users`, or all of the machine.
  explicit GpuReader(std::optional<std::vector<GpuUser>> users);
  ~GpuReader();
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;

  // In NVML's order. What it returns after `stop` lacks values that could be told.
  std::vector<GpuReading> Read(const std::stop_token& stop);

 private:
  class Gpu;

  void Find(const std::stop_token& stop);

  std::optional<std::vector<GpuUser>> users_;
  bool has_searched_ = false;
  std::vector<std::unique_ptr<Gpu>> gpus_;
};

}  // namespace lockstep
