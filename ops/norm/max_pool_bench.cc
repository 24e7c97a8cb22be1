// Measures the share of the GPU's copy bandwidth that the kernels reach, and that ATen's max-pooling reaches, in bf16.
// Run this benchmark with bazel run -c opt //ops/norm:max_pool_bench
//
// With a window of 3 and stride 2, y has one value for each four values of x. For each value of x, forward moves 2.75
// bytes (reads x; writes a fourth of a value of y and a fourth of a position, which has one byte), and backward moves
// 2.75 bytes (reads a fourth of a value of dy and a fourth of a position; writes dx). The reference is a
// device-to-device copy of as many bytes in the same run: `of_copy` is the copy's time divided by the measured time.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/norm/max_pool.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

template <typename Function>
void Run(benchmark::State& state, const Function& function, bool backward) {
  const BenchStream stream;
  const int64_t side = state.range(1);
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor x = at::randn({256, state.range(0), side, side}, options)
                           .contiguous(at::MemoryFormat::ChannelsLast)
                           .requires_grad_();
  const auto forward = [&] { return function(x, 3, 2, 1); };
  const at::Tensor y = forward();
  const at::Tensor dy = at::randn_like(y);
  const double copy = GraphCopySeconds(x.numel() * 11 / 4);
  double seconds = 0;
  for (auto _ : state) {
    const double once =
        backward
            ? GraphSeconds([&] { torch::autograd::grad({y}, {x}, {dy}, /*retain_graph=*/true); })
            : GraphSeconds(forward);
    state.SetIterationTime(once);
    seconds += once;
  }
  state.counters["of_copy"] = copy * static_cast<double>(state.iterations()) / seconds;
}

// The arguments are the number of channels and the side of the images: those of ResNet's pooling on 256 images, and
// smaller images.
#define LOCKSTEP_MAX_POOL_BENCH(name, ...)                             \
  void BM_##name(benchmark::State& state) { Run(state, __VA_ARGS__); } \
  BENCHMARK(BM_##name)->Args({64, 112})->Args({256, 28})->Iterations(3)->UseManualTime()

LOCKSTEP_MAX_POOL_BENCH(Forward, MaxPool, false);
LOCKSTEP_MAX_POOL_BENCH(ForwardAten, MaxPoolTwin, false);
LOCKSTEP_MAX_POOL_BENCH(Backward, MaxPool, true);
LOCKSTEP_MAX_POOL_BENCH(BackwardAten, MaxPoolTwin, true);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
