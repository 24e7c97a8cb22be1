// Measures the share of the GPU's copy bandwidth that the kernels reach for ResNet's stem in bf16. For comparison, this
// benchmark also measures BatchNorm() followed by MaxPool(), and ATen's operations. Run this benchmark with bazel run
// -c opt //ops/norm:norm_pool_bench
//
// y has one value for each four values of x. For each value of x, forward moves 4.75 bytes (reads x twice; writes a
// fourth of a value of y and a fourth of a code, which has one byte), and backward moves 7.5 bytes (reads x, a fourth
// of a value of dy and a fourth of a code, all twice; writes dx). The reference is a device-to-device copy of as many
// bytes in the same run: `of_copy` is the copy's time divided by the measured time. The other implementations move more
// bytes, but their `of_copy` is computed with the same number of bytes.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/norm/max_pool.h"
#include "ops/norm/norm_pool.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

at::Tensor NormThenPool(const at::Tensor& x, const ChannelNorm& norm) {
  return MaxPool(BatchNorm(x, norm, Activation::kRelu), 3, 2, 1);
}

template <typename Function>
void Run(benchmark::State& state, const Function& function, bool backward) {
  const BenchStream stream;
  const int64_t channels = state.range(0);
  const int64_t side = state.range(1);
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::TensorOptions floats = options.dtype(at::kFloat);
  const at::Tensor x = at::randn({256, channels, side, side}, options)
                           .contiguous(at::MemoryFormat::ChannelsLast)
                           .requires_grad_();
  const ChannelNorm norm{.weight = at::ones({channels}, floats).requires_grad_(),
                         .bias = at::zeros({channels}, floats).requires_grad_(),
                         .running_mean = at::zeros({channels}, floats),
                         .running_var = at::ones({channels}, floats),
                         .counters = NewNormCounters(channels, at::kCUDA)};
  const auto forward = [&] { return function(x, norm); };
  const at::Tensor y = forward();
  const at::Tensor dy = at::randn_like(y);
  const double copy = GraphCopySeconds(x.numel() * (backward ? 30 : 19) / 4);
  double seconds = 0;
  for (auto _ : state) {
    const double once = backward ? GraphSeconds([&] {
      torch::autograd::grad({y}, {x, norm.weight, norm.bias}, {dy}, /*retain_graph=*/true);
    })
                                 : GraphSeconds(forward);
    state.SetIterationTime(once);
    seconds += once;
  }
  state.counters["of_copy"] = copy * static_cast<double>(state.iterations()) / seconds;
}

// The arguments are the number of channels and the side of the images of ResNet's stem, for 256 images.
#define LOCKSTEP_NORM_POOL_BENCH(name, ...)                            \
  void BM_##name(benchmark::State& state) { Run(state, __VA_ARGS__); } \
  BENCHMARK(BM_##name)->Args({64, 112})->Iterations(3)->UseManualTime()

LOCKSTEP_NORM_POOL_BENCH(Forward, NormPool, false);
LOCKSTEP_NORM_POOL_BENCH(ForwardInTwo, NormThenPool, false);
LOCKSTEP_NORM_POOL_BENCH(ForwardAten, NormPoolTwin, false);
LOCKSTEP_NORM_POOL_BENCH(Backward, NormPool, true);
LOCKSTEP_NORM_POOL_BENCH(BackwardInTwo, NormThenPool, true);
LOCKSTEP_NORM_POOL_BENCH(BackwardAten, NormPoolTwin, true);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
