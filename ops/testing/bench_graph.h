// For benchmarks: measures kernels that take less time than the host needs to enqueue them.
#pragma once

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <limits>

#include "ops/testing/bench_clock.h"

namespace lockstep::ops {

// Returns the time in seconds of one call of `launch`. A CUDA graph contains 20 calls, and the fastest of 10 replays
// counts. If `launch` differentiates a tensor, that tensor must have been computed on the same stream. Tensors that fit
// the L2 cache may stay there.
template <typename Launch>
double GraphSeconds(const Launch& launch) {
  constexpr int kLaunches = 20;
  launch();  // the first call does setup that a capture forbids
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  for (int i = 0; i < kLaunches; ++i) launch();
  graph.capture_end();
  graph.replay();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 10; ++i) best = std::min(best, DeviceSeconds([&] { graph.replay(); }));
  return best / kLaunches;
}

// While a BenchStream exists, the current stream is one that can be captured.
class BenchStream {
 public:
  BenchStream() : guard_(c10::cuda::getStreamFromPool()) {}

 private:
  c10::cuda::CUDAStreamGuard guard_;
};

// Returns the time in seconds of a device-to-device copy that reads bytes / 2 and writes bytes / 2.
inline double GraphCopySeconds(int64_t bytes) {
  const at::Tensor from = at::ones({bytes / 2}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  const at::Tensor to = at::empty_like(from);
  return GraphSeconds([&] { to.copy_(from); });
}

}  // namespace lockstep::ops
