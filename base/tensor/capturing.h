// Says whether a CUDA graph is being captured on the current stream. During a capture, work is recorded and not
// executed.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

namespace lockstep {

// Returns whether this thread's current stream is being captured. Nothing can be timed on such a stream.
inline bool IsCapturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

// The same; false if `device` is the CPU.
inline bool IsCapturing(at::Device device) { return device.is_cuda() && IsCapturing(); }

}  // namespace lockstep
