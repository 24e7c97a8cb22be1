// For benchmarks: measures the time of kernels that run for a shorter time than the host needs to queue them.
#pragma once

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <limits>

#include "trainer/ops/testing/bench_clock.h"

namespace lockstep::ops {

// Seconds of one `launch`: of many that one CUDA graph replays, the best of some replays. What it
// differentiates must have been computed under the same guard. Tensors that fit the L2 cache may
// stay there.
template <typename Launch>
double GraphSeconds(const Launch& launch) {
  constexpr int kLaunches = 20;
  launch();  // sets up what a capture may not
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  for (int i = 0; i < kLaunches; ++i) launch();
  graph.capture_end();
  graph.replay();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 10; ++i) best = std::min(best, DeviceSeconds([&] { graph.replay(); }));
  return best / kLaunches;
}

// A stream that can be captured, until it ends.
class BenchStream {
 public:
  BenchStream() : guard_(c10::cuda::getStreamFromPool()) {}

 private:
  c10::cuda::CUDAStreamGuard guard_;
};

// Seconds of a device-to-device copy that reads and writes `bytes` together.
inline double GraphCopySeconds(int64_t bytes) {
  const at::Tensor from = at::ones({bytes / 2}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  const at::Tensor to = at::empty_like(from);
  return GraphSeconds([&] { to.copy_(from); });
}

}  // namespace lockstep::ops
