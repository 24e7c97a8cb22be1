// The kernels' share of the GPU's copy bandwidth at ResNet's stem, beside the norm's and the
// pooling's own kernels one after the other, and ATen's, in bf16:
// bazel run -c opt //ops/norm:norm_pool_bench
//
// Bytes of a value of x, four of which make one of y: forward 4.75 (read x for the statistics and
// again; a fourth of: write y and the winners' positions), backward 7.5 (for the sums and again:
// read x, and a fourth of: read dy and the positions; write dx). The limit is what a
// device-to-device copy of as many bytes reaches in the same run: `of_copy` is the rate over that.
// The others move more bytes; their `of_copy` is their rate in terms of these.

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

// ResNet's on 256 images.
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
