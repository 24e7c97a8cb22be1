// Measures the share of the GPU's copy bandwidth that the kernels reach, and that ATen's layer norm and RMS norm with
// bf16 weights reach. Run this benchmark with bazel run -c opt //ops/norm:layer_norm_bench
//
// For each bf16 value, forward moves 4 bytes (reads x, writes y), and backward moves 6 bytes (reads x and dy, writes
// dx). With the residual addition, forward moves 8 bytes (also reads the branch and writes the sum), and backward moves
// 8 bytes (also reads the sum's gradient), whether or not the branch has a bias. The reference is a device-to-device
// copy of as many bytes in the same run: `of_copy` is the copy's time divided by the measured time. ATen moves more
// bytes, but its `of_copy` is computed with the same number of bytes.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/norm/layer_norm.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

using torch::autograd::variable_list;

variable_list Kernels(const variable_list& t) { return {LayerNorm(t[0], t[2], t[3], 1e-5)}; }

variable_list KernelsAdd(const variable_list& t) {
  const auto [sum, y] = AddLayerNorm(t[0], {t[1], t[4]}, t[2], t[3], 1e-5);
  return {sum, y};
}

variable_list Aten(const variable_list& t) {
  return {at::layer_norm(t[0], {t[0].size(-1)}, t[2].to(at::kBFloat16), t[3].to(at::kBFloat16))};
}

variable_list AtenAdd(const variable_list& t) {
  const at::Tensor sum = t[0] + (t[1] + t[4].to(at::kBFloat16));
  return {sum, Aten({sum, {}, t[2], t[3]})[0]};
}

variable_list RmsKernels(const variable_list& t) { return {RmsNorm(t[0], t[2], 1e-5)}; }

variable_list RmsKernelsAdd(const variable_list& t) {
  const auto [sum, y] = AddRmsNorm(t[0], {t[1], t[4]}, t[2], 1e-5);
  return {sum, y};
}

variable_list RmsAten(const variable_list& t) {
  return {at::rms_norm(t[0], {t[0].size(-1)}, t[2].to(at::kBFloat16), 1e-5)};
}

variable_list RmsAtenAdd(const variable_list& t) {
  const at::Tensor sum = t[0] + (t[1] + t[4].to(at::kBFloat16));
  return {sum, RmsAten({sum, {}, t[2]})[0]};
}

template <typename Function>
void Run(benchmark::State& state, const Function& function, bool adds, bool backward) {
  const BenchStream stream;
  const int64_t rows = state.range(0);
  const int64_t width = state.range(1);
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::TensorOptions weights = options.dtype(at::kFloat);
  const variable_list inputs = {at::randn({rows, width}, options).requires_grad_(),
                                at::randn({rows, width}, options).requires_grad_(),
                                at::randn({width}, weights).requires_grad_(),
                                at::randn({width}, weights).requires_grad_(),
                                at::randn({width}, weights).requires_grad_()};
  const variable_list outputs = function(inputs);
  variable_list gradients;
  for (const at::Tensor& output : outputs) gradients.push_back(at::randn_like(output));
  const int64_t bytes = adds ? 8 : backward ? 6 : 4;
  const double copy = GraphCopySeconds(rows * width * bytes);
  double seconds = 0;
  for (auto _ : state) {
    const double once = backward ? GraphSeconds([&] {
      torch::autograd::grad(outputs, inputs, gradients, /*retain_graph=*/true,
                            /*create_graph=*/false, /*allow_unused=*/true);
    })
                                 : GraphSeconds([&] { function(inputs); });
    state.SetIterationTime(once);
    seconds += once;
  }
  state.counters["of_copy"] = copy * static_cast<double>(state.iterations()) / seconds;
}

#define LOCKSTEP_LAYER_NORM_BENCH(name, ...)                           \
  void BM_##name(benchmark::State& state) { Run(state, __VA_ARGS__); } \
  BENCHMARK(BM_##name)                                                 \
      ->Args({16384, 384})                                             \
      ->Args({16384, 768})                                             \
      ->Args({65536, 768})                                             \
      ->Args({16384, 1600})                                            \
      ->Args({16384, 4096})                                            \
      ->Iterations(5)                                                  \
      ->UseManualTime()

LOCKSTEP_LAYER_NORM_BENCH(Forward, Kernels, false, false);
LOCKSTEP_LAYER_NORM_BENCH(ForwardAten, Aten, false, false);
LOCKSTEP_LAYER_NORM_BENCH(Backward, Kernels, false, true);
LOCKSTEP_LAYER_NORM_BENCH(BackwardAten, Aten, false, true);
LOCKSTEP_LAYER_NORM_BENCH(AddForward, KernelsAdd, true, false);
LOCKSTEP_LAYER_NORM_BENCH(AddForwardAten, AtenAdd, true, false);
LOCKSTEP_LAYER_NORM_BENCH(AddBackward, KernelsAdd, true, true);
LOCKSTEP_LAYER_NORM_BENCH(AddBackwardAten, AtenAdd, true, true);
LOCKSTEP_LAYER_NORM_BENCH(RmsForward, RmsKernels, false, false);
LOCKSTEP_LAYER_NORM_BENCH(RmsForwardAten, RmsAten, false, false);
LOCKSTEP_LAYER_NORM_BENCH(RmsBackward, RmsKernels, false, true);
LOCKSTEP_LAYER_NORM_BENCH(RmsBackwardAten, RmsAten, false, true);
LOCKSTEP_LAYER_NORM_BENCH(RmsAddForward, RmsKernelsAdd, true, false);
LOCKSTEP_LAYER_NORM_BENCH(RmsAddForwardAten, RmsAtenAdd, true, false);
LOCKSTEP_LAYER_NORM_BENCH(RmsAddBackward, RmsKernelsAdd, true, true);
LOCKSTEP_LAYER_NORM_BENCH(RmsAddBackwardAten, RmsAtenAdd, true, true);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
