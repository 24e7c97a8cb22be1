// Measures the share of the GPU's copy bandwidth that the kernels reach, and that ATen's addition and activation reach.
// Run this benchmark with bazel run -c opt //ops/product:bias_activation_bench
//
// For each bf16 value, forward moves 4 bytes (reads x, writes y), and backward moves 6 bytes (reads x and dy, writes
// dx). The reference is a device-to-device copy of as many bytes in the same run: `of_copy` is the copy's time divided
// by the measured time. ATen moves more bytes, but its `of_copy` is computed with the same number of bytes.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/product/bias_activation.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

template <Activation kActivation>
at::Tensor Kernels(const at::Tensor& x, const at::Tensor& bias) {
  return BiasActivation(x, bias, kActivation);
}

at::Tensor Aten(const at::Tensor& x, const at::Tensor& bias) {
  return at::gelu(x + bias.to(at::kBFloat16), "tanh");
}

template <typename Function>
void Run(benchmark::State& state, const Function& function, bool backward) {
  const BenchStream stream;
  const int64_t rows = state.range(0);
  const int64_t width = state.range(1);
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor x = at::randn({rows, width}, options).requires_grad_();
  const at::Tensor bias = at::randn({width}, options.dtype(at::kFloat)).requires_grad_();
  const at::Tensor y = function(x, bias);
  const at::Tensor dy = at::randn_like(y);
  const double copy = GraphCopySeconds(rows * width * (backward ? 6 : 4));
  double seconds = 0;
  for (auto _ : state) {
    const double once = backward ? GraphSeconds([&] {
      torch::autograd::grad({y}, {x, bias}, {dy}, /*retain_graph=*/true);
    })
                                 : GraphSeconds([&] { function(x, bias); });
    state.SetIterationTime(once);
    seconds += once;
  }
  state.counters["of_copy"] = copy * static_cast<double>(state.iterations()) / seconds;
}

#define LOCKSTEP_BIAS_ACTIVATION_BENCH(name, ...)                      \
  void BM_##name(benchmark::State& state) { Run(state, __VA_ARGS__); } \
  BENCHMARK(BM_##name)->Args({16384, 3072})->Args({65536, 3072})->Iterations(5)->UseManualTime()

LOCKSTEP_BIAS_ACTIVATION_BENCH(GeluTanh, Kernels<Activation::kGeluTanh>, false);
LOCKSTEP_BIAS_ACTIVATION_BENCH(GeluTanhBackward, Kernels<Activation::kGeluTanh>, true);
LOCKSTEP_BIAS_ACTIVATION_BENCH(Gelu, Kernels<Activation::kGelu>, false);
LOCKSTEP_BIAS_ACTIVATION_BENCH(GeluBackward, Kernels<Activation::kGelu>, true);
LOCKSTEP_BIAS_ACTIVATION_BENCH(SiluBackward, Kernels<Activation::kSilu>, true);
LOCKSTEP_BIAS_ACTIVATION_BENCH(AtenGeluTanh, Aten, false);
LOCKSTEP_BIAS_ACTIVATION_BENCH(AtenGeluTanhBackward, Aten, true);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
