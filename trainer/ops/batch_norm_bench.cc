// The kernels' share of the GPU's copy bandwidth, beside ATen's batch norm, addition and ReLU in bf16:
// bazel run -c opt //trainer/ops:batch_norm_bench
//
// Bytes of a bf16 value: forward 6 (read x for the statistics and again, write y), backward 10 (read
// x and dy twice, write dx); with the residual addition 8 and 12 (read it; write its gradient). The
// limit is what a device-to-device copy of as many bytes reaches in the same run: `of_copy` is the
// rate over that. ATen does the same in more bytes; its `of_copy` is its rate in terms of these.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include "trainer/ops/batch_norm.h"
#include "trainer/ops/bench_graph.h"

namespace lockstep::ops {
namespace {

using torch::autograd::variable_list;

template <typename Function>
void Run(benchmark::State& state, const Function& function, bool adds, bool backward) {
  const BenchStream stream;
  const int64_t channels = state.range(0);
  const int64_t side = state.range(1);
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::TensorOptions floats = options.dtype(at::kFloat);
  const auto images = [&] {
    return at::randn({256, channels, side, side}, options)
        .contiguous(at::MemoryFormat::ChannelsLast);
  };
  const at::Tensor x = images().requires_grad_();
  const at::Tensor residual = adds ? images().requires_grad_() : at::Tensor();
  const ChannelNorm norm{.weight = at::ones({channels}, floats).requires_grad_(),
                         .bias = at::zeros({channels}, floats).requires_grad_(),
                         .running_mean = at::zeros({channels}, floats),
                         .running_var = at::ones({channels}, floats)};
  const auto forward = [&] { return function(x, norm, Activation::kRelu, residual); };
  variable_list inputs = {x, norm.weight, norm.bias};
  if (adds) inputs.push_back(residual);
  const at::Tensor y = forward();
  const at::Tensor dy = images();
  const int64_t bytes = backward ? (adds ? 12 : 10) : (adds ? 8 : 6);
  const double copy = GraphCopySeconds(x.numel() * bytes);
  double seconds = 0;
  for (auto _ : state) {
    const double once =
        backward
            ? GraphSeconds([&] { torch::autograd::grad({y}, inputs, {dy}, /*retain_graph=*/true); })
            : GraphSeconds(forward);
    state.SetIterationTime(once);
    seconds += once;
  }
  state.counters["of_copy"] = copy * static_cast<double>(state.iterations()) / seconds;
}

// The norms of ResNet-50 on 256 images.
#define LOCKSTEP_BATCH_NORM_BENCH(name, ...)                           \
  void BM_##name(benchmark::State& state) { Run(state, __VA_ARGS__); } \
  BENCHMARK(BM_##name)                                                 \
      ->Args({64, 112})                                                \
      ->Args({64, 56})                                                 \
      ->Args({256, 56})                                                \
      ->Args({512, 28})                                                \
      ->Args({1024, 14})                                               \
      ->Args({2048, 7})                                                \
      ->Args({512, 7})                                                 \
      ->Iterations(3)                                                  \
      ->UseManualTime()

LOCKSTEP_BATCH_NORM_BENCH(Forward, BatchNorm, false, false);
LOCKSTEP_BATCH_NORM_BENCH(ForwardAten, BatchNormTwin, false, false);
LOCKSTEP_BATCH_NORM_BENCH(Backward, BatchNorm, false, true);
LOCKSTEP_BATCH_NORM_BENCH(BackwardAten, BatchNormTwin, false, true);
LOCKSTEP_BATCH_NORM_BENCH(AddForward, BatchNorm, true, false);
LOCKSTEP_BATCH_NORM_BENCH(AddForwardAten, BatchNormTwin, true, false);
LOCKSTEP_BATCH_NORM_BENCH(AddBackward, BatchNorm, true, true);
LOCKSTEP_BATCH_NORM_BENCH(AddBackwardAten, BatchNormTwin, true, true);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
