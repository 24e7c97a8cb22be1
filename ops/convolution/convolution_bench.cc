// Measures the share of the GPU's peak that ResNet-50's convolutions reach with the plans that a search finds, and with
// cuDNN's first plans:
// bazel run -c opt //ops/convolution:convolution_bench
//
// The arguments are the number of input channels, the number of output channels, the side of the image, the size of the
// window and the stride, for 256 images. The 4x4 convolution is ResNet's 7x7 stem, converted to squares of 2x2 pixels
// (stem_convolution.h). Each time is that of the fastest of several replays of a CUDA graph. `first_us` is the time of
// cuDNN's first plan, without a search. `of_peak` is the rate divided by the 989 TFLOP/s that an H100 or H200 reaches
// in dense bfloat16.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "ops/convolution/convolution_planner.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

constexpr double kPeak_flops = 989e12;
constexpr int64_t kCount = 256;
constexpr int64_t kStemSize = 4;

at::Tensor Images(at::IntArrayRef sizes) {
  return at::randn(sizes, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16))
      .contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor RunPass(ConvolutionPlanner& planner, ConvolutionPass pass, const ConvolutionTensors& of,
                   const ConvolutionOptions& options) {
  switch (pass) {
    case ConvolutionPass::kInputGradient:
      return planner.InputGradient(of.y, of.x, of.weight, options);
    case ConvolutionPass::kWeightGradient:
      return planner.WeightGradient(of.y, of.x, of.weight, options);
    case ConvolutionPass::kForward:
      break;
  }
  return planner.Forward(of.x, of.weight, options);
}

void Run(benchmark::State& state, ConvolutionPass pass) {
  const BenchStream stream;
  const int64_t inputs = state.range(0);
  const int64_t outputs = state.range(1);
  const int64_t side = state.range(2);
  const int64_t size = state.range(3);
  const ConvolutionOptions searched{.stride = state.range(4),
                                    .padding = size == kStemSize ? 0 : size / 2};
  ConvolutionOptions first = searched;
  first.searches = false;
  const int64_t made = (side + 2 * searched.padding - size) / searched.stride + 1;
  const ConvolutionTensors of{Images({kCount, inputs, side, side}),
                              Images({outputs, inputs, size, size}),
                              Images({kCount, outputs, made, made})};
  ConvolutionPlanner one("");
  ConvolutionPlanner other("");
  const at::Tensor expected = RunPass(one, pass, of, first);
  const at::Tensor difference = (RunPass(other, pass, of, searched) - expected).abs().max();
  if ((difference > 0.01 * expected.abs().max()).item<bool>()) {
    return state.SkipWithError("differs from cuDNN's first");
  }
  double seconds = 0;
  double first_seconds = 0;
  for (auto _ : state) {
    first_seconds += GraphSeconds([&] { RunPass(one, pass, of, first); });
    const double once = GraphSeconds([&] { RunPass(other, pass, of, searched); });
    state.SetIterationTime(once);
    seconds += once;
  }
  const double runs = static_cast<double>(state.iterations());
  const double flops =
      2.0 * static_cast<double>(of.y.numel() * inputs * size * size) * runs / seconds;
  state.counters["us"] = seconds / runs * 1e6;
  state.counters["first_us"] = first_seconds / runs * 1e6;
  state.counters["TFLOP/s"] = flops / 1e12;
  state.counters["of_peak"] = flops / kPeak_flops;
}

#define LOCKSTEP_CONVOLUTION_BENCH(name, pass)                  \
  void BM_##name(benchmark::State& state) { Run(state, pass); } \
  BENCHMARK(BM_##name)                                          \
      ->Args({16, 64, 115, kStemSize, 1})                       \
      ->Args({64, 64, 56, 3, 1})                                \
      ->Args({128, 128, 56, 3, 2})                              \
      ->Args({128, 128, 28, 3, 1})                              \
      ->Args({256, 256, 28, 3, 2})                              \
      ->Args({256, 256, 14, 3, 1})                              \
      ->Args({512, 512, 14, 3, 2})                              \
      ->Args({512, 512, 7, 3, 1})                               \
      ->Args({256, 512, 56, 1, 2})                              \
      ->Args({512, 1024, 28, 1, 2})                             \
      ->Args({1024, 2048, 14, 1, 2})                            \
      ->Iterations(3)                                           \
      ->UseManualTime()

LOCKSTEP_CONVOLUTION_BENCH(Forward, ConvolutionPass::kForward);
LOCKSTEP_CONVOLUTION_BENCH(InputGradient, ConvolutionPass::kInputGradient);
LOCKSTEP_CONVOLUTION_BENCH(WeightGradient, ConvolutionPass::kWeightGradient);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
