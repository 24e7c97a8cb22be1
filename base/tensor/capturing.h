// Says whether a CUDA graph is being captured on the current stream. During a capture, work is recorded and not
// executed.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

namespace lockstep {

// Returns whether this thread's current stream is being captured. Work on such a stream cannot be timed, because it
// does not run yet.
inline bool IsCapturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

// Returns whether `device` is a GPU and this thread's current stream is being captured.
inline bool IsCapturing(at::Device device) { return device.is_cuda() && IsCapturing(); }

}  // namespace lockstep
