// Times ResNet's stem on 256 images in bf16: with StemConvolution(), with ATen's operations on squares of 2x2 pixels
// (StemConvolutionOfSquares()), and with ATen's 7x7 convolution. Run this benchmark with bazel run -c opt
// //ops/convolution:stem_convolution_bench
//
// The FLOPs are those of the convolution of squares with 16 channels, including the products with zeros: 105 GFLOP in
// each pass. The bytes in forward are those of the image, of its squares (written and read) and of the output. The
// bytes for the gradient of the weight are those of the squares and of the output's gradient. The reference is a
// device-to-device copy of as many bytes in the same run: `of_copy` is the copy's time divided by the measured time.
// ATen's 7x7 convolution needs fewer FLOPs and bytes, but its figures are computed with the same numbers of FLOPs and
// bytes.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/convolution/stem_convolution.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kCount = 256;
constexpr int64_t kSide = 224;
constexpr int64_t kOutputs = 64;
constexpr int64_t kPixels = kCount * (kSide / 2) * (kSide / 2);  // pixels of all outputs
constexpr int64_t kSquares = kCount * (kSide / 2 + 3) * (kSide / 2 + 3);
constexpr int64_t kChannelsOfSquares = 16;

enum class Pass { kForward, kWeightGradient };

// Times a pass of `function`, which is called with the images and the weight in `weight_type`.
template <typename Function>
void Run(benchmark::State& state, const Function& function, at::ScalarType weight_type, Pass pass) {
  const BenchStream stream;
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor x =
      at::randn({kCount, 3, kSide, kSide}, options).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor weight = at::randn({kOutputs, 3, 7, 7}, options)
                                .to(weight_type)
                                .contiguous(at::MemoryFormat::ChannelsLast)
                                .requires_grad_();
  const auto forward = [&] { return function(x, weight); };
  const at::Tensor y = forward();
  const at::Tensor dy = at::randn_like(y);
  const int64_t of_squares = 2 * kSquares * kChannelsOfSquares;
  const int64_t bytes =
      2 * y.numel() + (pass == Pass::kForward ? 2 * x.numel() + 2 * of_squares : of_squares);
  const double copy = GraphCopySeconds(bytes);
  const double operations = 2.0 * kPixels * kOutputs * 16 * kChannelsOfSquares;
  double seconds = 0;
  for (auto _ : state) {
    const double once = pass == Pass::kForward ? GraphSeconds(forward) : GraphSeconds([&] {
      torch::autograd::grad({y}, {weight}, {dy}, /*retain_graph=*/true);
    });
    state.SetIterationTime(once);
    seconds += once;
  }
  const double mean = seconds / static_cast<double>(state.iterations());
  state.counters["of_copy"] = copy / mean;
  state.counters["TFLOP/s"] = operations / mean * 1e-12;
}

#define LOCKSTEP_STEM_BENCH(name, ...)                                 \
  void BM_##name(benchmark::State& state) { Run(state, __VA_ARGS__); } \
  BENCHMARK(BM_##name)->Iterations(3)->UseManualTime()->Unit(benchmark::kMicrosecond)

LOCKSTEP_STEM_BENCH(Forward, StemConvolution, at::kFloat, Pass::kForward);
LOCKSTEP_STEM_BENCH(ForwardAtenOfSquares, StemConvolutionOfSquares, at::kBFloat16, Pass::kForward);
LOCKSTEP_STEM_BENCH(ForwardAten, StemConvolutionTwin, at::kBFloat16, Pass::kForward);
LOCKSTEP_STEM_BENCH(WeightGradient, StemConvolution, at::kFloat, Pass::kWeightGradient);
LOCKSTEP_STEM_BENCH(WeightGradientAtenOfSquares, StemConvolutionOfSquares, at::kBFloat16,
                    Pass::kWeightGradient);
LOCKSTEP_STEM_BENCH(WeightGradientAten, StemConvolutionTwin, at::kBFloat16, Pass::kWeightGradient);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
