// Measures the share of the GPU's peak that GPT-2's MLP reaches, with the fused kernels and with separate operations
// (Linear() and BiasActivation()). Run this benchmark with bazel run -c opt //ops/product:feed_forward_bench
//
// The argument is the number of tokens (16 and 64 texts of 1024 tokens). The values are bfloat16. The benchmark times
// forward alone, as in training, and forward with backward, which computes the gradients of x and of the four weights
// and biases. The FLOPs are those of the matrix products, two in forward and four in backward. `of_peak` is the rate of
// the fastest of several replays of a CUDA graph, divided by the 989 TFLOP/s that an H100 or H200 reaches in dense
// bfloat16.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/product/bias_activation.h"
#include "ops/product/feed_forward.h"
#include "ops/product/linear.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

constexpr double kPeak_flops = 989e12;
constexpr int64_t kWidth = 768;
constexpr int64_t kHidden = 3072;
constexpr WeightLayout kLayout = WeightLayout::kInputsOutputs;
constexpr Activation kActivation = Activation::kGeluTanh;

at::Tensor Fused(const at::Tensor& x, const FeedForwardWeights& weights) {
  TORCH_CHECK(HasFusedFeedForward(x, weights, kLayout, kActivation), "no kernels on this GPU");
  return FeedForward(x, weights, kLayout, kActivation);
}

at::Tensor Parts(const at::Tensor& x, const FeedForwardWeights& weights) {
  const at::Tensor inner = Linear(x, weights.fc, /*bias=*/{}, kLayout);
  return Linear(BiasActivation(inner, weights.fc_bias, kActivation), weights.out, weights.out_bias,
                kLayout);
}

template <typename Function>
void Run(benchmark::State& state, const Function& function, bool backward) {
  const BenchStream stream;
  const int64_t tokens = state.range(0);
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  const auto weight = [&](int64_t inputs, int64_t outputs) {
    return (0.03 * at::randn({inputs, outputs}, options)).requires_grad_();
  };
  const FeedForwardWeights weights = {
      weight(kWidth, kHidden), at::randn({kHidden}, options).requires_grad_(),
      weight(kHidden, kWidth), at::randn({kWidth}, options).requires_grad_()};
  const at::Tensor x = at::randn({tokens, kWidth}, options.dtype(at::kBFloat16)).requires_grad_();
  const at::Tensor dy = at::randn_like(x);
  const auto once = [&] {
    const at::Tensor y = function(x, weights);
    if (!backward) return;
    torch::autograd::grad({y}, {x, weights.fc, weights.fc_bias, weights.out, weights.out_bias},
                          {dy});
  };
  double seconds = 0;
  for (auto _ : state) {
    const double best = GraphSeconds(once);
    state.SetIterationTime(best);
    seconds += best;
  }
  const double products = backward ? 6 : 2;
  const double flops = products * 2 * static_cast<double>(tokens) * kWidth * kHidden;
  state.counters["of_peak"] =
      flops / kPeak_flops * static_cast<double>(state.iterations()) / seconds;
}

#define LOCKSTEP_FEED_FORWARD_BENCH(name, function, backward)                         \
  void BM_##name(benchmark::State& state) { Run(state, function, backward); }         \
  BENCHMARK(BM_##name)->Arg(16384)->Arg(65536)->Iterations(5)->UseManualTime()->Unit( \
      benchmark::kMillisecond)

LOCKSTEP_FEED_FORWARD_BENCH(Gpt2Fused, Fused, false);
LOCKSTEP_FEED_FORWARD_BENCH(Gpt2Parts, Parts, false);
LOCKSTEP_FEED_FORWARD_BENCH(Gpt2FusedBackward, Fused, true);
LOCKSTEP_FEED_FORWARD_BENCH(Gpt2PartsBackward, Parts, true);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
