// Measures the time of GPU work for the benchmarks.
#pragma once

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>

#include <algorithm>
#include <limits>

namespace lockstep::ops {

// Returns the time in seconds, measured with CUDA events, of the work that `launch` enqueues.
template <typename Launch>
double DeviceSeconds(const Launch& launch) {
  at::cuda::CUDAEvent begin(cudaEventDefault);
  at::cuda::CUDAEvent end(cudaEventDefault);
  begin.record();
  launch();
  end.record();
  end.synchronize();
  return begin.elapsed_time(end) * 1e-3;
}

// Returns the time in seconds of the fastest of 20 device-to-device copies. Each copy reads bytes / 2 bytes and writes
// bytes / 2 bytes.
inline double CopySeconds(int64_t bytes) {
  const at::Tensor from = at::ones({bytes / 2}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  const at::Tensor to = at::empty_like(from);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 20; ++i) best = std::min(best, DeviceSeconds([&] { to.copy_(from); }));
  return best;
}

}  // namespace lockstep::ops
