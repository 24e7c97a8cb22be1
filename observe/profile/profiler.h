// Profiler: records what the host and the device do, with Kineto, LibTorch's profiler.
//
// Promise: training computes the same results, bit for bit, while the profiler records. CUDA graphs that were captured
// before the recording need not be captured again.
#pragma once

#include <c10/core/Device.h>

#include <nlohmann/json.hpp>

namespace lockstep {

class Profiler {
 public:
  explicit Profiler(at::Device device) : device_(device) {}
  // Ends a recording that was not stopped, and drops the recording.
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Waits for the device, and begins to record. Only one object of a process can record at a time.
  void Start();

  // Waits for the device, ends the recording, and returns the recording as a Chrome trace (a JSON object with
  // "traceEvents"). Must be called on the thread that called Start(). Throws Error (kCheckpoint) if the trace cannot be
  // written to a temporary file.
  nlohmann::json Stop();

  bool is_recording() const { return is_recording_; }

 private:
  void WaitForDevice() const;

  at::Device device_;
  bool is_recording_ = false;
};

}  // namespace lockstep
