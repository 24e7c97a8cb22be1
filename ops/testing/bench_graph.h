// Measures, for benchmarks, kernels that take less time than the host needs to enqueue them.
#pragma once

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <limits>

#include "ops/testing/bench_clock.h"

namespace lockstep::ops {

// Returns the GPU's time in seconds for one call of `launch`: the time of the fastest of 10 replays of a CUDA graph
// with 20 calls, divided by 20. If `launch` differentiates a tensor, this tensor must have been computed on the current
// stream. Tensors that fit the L2 cache may stay in this cache between the calls.
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

// While a BenchStream exists, the current stream is a stream that CUDA graphs can capture.
class BenchStream {
 public:
  BenchStream() : guard_(c10::cuda::getStreamFromPool()) {}

 private:
  c10::cuda::CUDAStreamGuard guard_;
};

// Returns the time in seconds of a device-to-device copy that reads bytes / 2 bytes and writes bytes / 2 bytes.
inline double GraphCopySeconds(int64_t bytes) {
  const at::Tensor from = at::ones({bytes / 2}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  const at::Tensor to = at::empty_like(from);
  return GraphSeconds([&] { to.copy_(from); });
}

}  // namespace lockstep::ops
