// Times the depthwise convolutions of ConvNeXt-T (7x7) and EfficientNet-B0 (3x3 and 5x5) on 128 images in bf16, with
// Lockstep's kernels and with ATen. Run this benchmark with bazel run -c opt
// //ops/convolution:depthwise_convolution_bench
//
// The arguments are the number of channels, the side of the image, the size of the window and the stride. `of_copy` is
// the time of a device-to-device copy of as many bytes as the images that are read and written, divided by the measured
// time. `TFLOP/s` counts all products of the window, also those outside of the image. An H100 computes at most 67
// TFLOP/s in float32 without tensor cores.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/convolution/depthwise_convolution.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kCount = 128;

enum class Pass { kForward, kInputGradient, kWeightGradient };

// Times a pass of `function`, which is called with the images, the weight in `weight_type`, no bias, the stride and the
// padding.
template <typename Function>
void Run(benchmark::State& state, const Function& function, at::ScalarType weight_type, Pass pass) {
  const BenchStream stream;
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const int64_t channels = state.range(0);
  const int64_t side = state.range(1);
  const int64_t size = state.range(2);
  const at::Tensor x = at::randn({kCount, channels, side, side}, options)
                           .contiguous(at::MemoryFormat::ChannelsLast)
                           .requires_grad_(pass == Pass::kInputGradient);
  const at::Tensor weight = at::randn({channels, 1, size, size}, options)
                                .to(weight_type)
                                .requires_grad_(pass == Pass::kWeightGradient);
  const auto forward = [&] { return function(x, weight, at::Tensor(), state.range(3), size / 2); };
  const at::Tensor y = forward();
  const at::Tensor dy = at::randn_like(y);
  const auto backward = [&] {
    torch::autograd::grad({y}, {pass == Pass::kInputGradient ? x : weight}, {dy},
                          /*retain_graph=*/true);
  };
  const double copy = GraphCopySeconds(2 * (x.numel() + y.numel()));
  double seconds = 0;
  for (auto _ : state) {
    const double once = pass == Pass::kForward ? GraphSeconds(forward) : GraphSeconds(backward);
    state.SetIterationTime(once);
    seconds += once;
  }
  const double mean = seconds / static_cast<double>(state.iterations());
  state.counters["of_copy"] = copy / mean;
  state.counters["TFLOP/s"] = 2e-12 * static_cast<double>(y.numel() * size * size) / mean;
}

#define LOCKSTEP_DEPTHWISE_BENCH(name, ...)                            \
  void BM_##name(benchmark::State& state) { Run(state, __VA_ARGS__); } \
  BENCHMARK(BM_##name)                                                 \
      ->Args({96, 56, 7, 1})                                           \
      ->Args({192, 28, 7, 1})                                          \
      ->Args({384, 14, 7, 1})                                          \
      ->Args({768, 7, 7, 1})                                           \
      ->Args({32, 112, 3, 1})                                          \
      ->Args({144, 56, 5, 2})                                          \
      ->Args({240, 28, 5, 1})                                          \
      ->Args({672, 14, 5, 1})                                          \
      ->Iterations(2)                                                  \
      ->UseManualTime()                                                \
      ->Unit(benchmark::kMicrosecond)

LOCKSTEP_DEPTHWISE_BENCH(Forward, DepthwiseConvolution, at::kFloat, Pass::kForward);
LOCKSTEP_DEPTHWISE_BENCH(ForwardAten, DepthwiseConvolutionTwin, at::kBFloat16, Pass::kForward);
LOCKSTEP_DEPTHWISE_BENCH(InputGradient, DepthwiseConvolution, at::kFloat, Pass::kInputGradient);
LOCKSTEP_DEPTHWISE_BENCH(InputGradientAten, DepthwiseConvolutionTwin, at::kBFloat16,
                         Pass::kInputGradient);
LOCKSTEP_DEPTHWISE_BENCH(WeightGradient, DepthwiseConvolution, at::kFloat, Pass::kWeightGradient);
LOCKSTEP_DEPTHWISE_BENCH(WeightGradientAten, DepthwiseConvolutionTwin, at::kBFloat16,
                         Pass::kWeightGradient);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
