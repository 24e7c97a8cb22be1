// Measures the share of the GPU's copy bandwidth that the kernels reach, and that ATen's mean and product reach, in
// bf16. Run this benchmark with bazel run -c opt //ops/norm:squeeze_excite_bench
//
// For each value, forward moves 6 bytes (reads x twice, writes y), and backward moves 8 bytes (reads dy and x, reads dy
// again, writes dx). The reference is a device-to-device copy of as many bytes in the same run: `of_copy` is the copy's
// time divided by the measured time. `of_copy` can exceed 1 if a second pass finds images in the L2 cache. The
// operations that compute the gate from the mean are not timed.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "ops/norm/squeeze_excite.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

using at::Tensor;

template <typename SqueezeFunction, typename ExciteFunction>
void Run(benchmark::State& state, const SqueezeFunction& squeeze, const ExciteFunction& excite,
         bool backward) {
  const BenchStream stream;
  const int64_t channels = state.range(0);
  const int64_t side = state.range(1);
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const Tensor x = at::randn({256, channels, side, side}, options)
                       .contiguous(at::MemoryFormat::ChannelsLast)
                       .requires_grad_();
  const Tensor gate = at::rand({256, channels, 1, 1}, options).requires_grad_();
  const auto forward = [&] {
    const Squeezed squeezed = squeeze(x);
    return std::vector<Tensor>{excite(squeezed.same_x, gate), squeezed.mean};
  };
  const std::vector<Tensor> results = forward();
  const std::vector<Tensor> exact = {x * gate, x.mean({2, 3}, /*keepdim=*/true)};
  const std::vector<Tensor> gradients = {at::randn_like(results[0]), at::randn_like(results[1])};
  const auto gradients_of = [&](const std::vector<Tensor>& of) {
    return torch::autograd::grad(of, {x, gate}, gradients, /*retain_graph=*/true);
  };
  const auto expect_near = [](const std::vector<Tensor>& found, const std::vector<Tensor>& wanted) {
    for (size_t i = 0; i < found.size(); ++i) {
      const double scale = wanted[i].abs().max().item<double>();
      TORCH_CHECK((found[i] - wanted[i]).abs().max().item<double>() < 0.02 * scale, "result ", i);
    }
  };
  expect_near(results, exact);
  expect_near(gradients_of(results), gradients_of(exact));
  const double copy = GraphCopySeconds(x.numel() * (backward ? 8 : 6));
  double seconds = 0;
  for (auto _ : state) {
    const double once =
        backward ? GraphSeconds([&] { gradients_of(results); }) : GraphSeconds(forward);
    state.SetIterationTime(once);
    seconds += once;
  }
  state.counters["of_copy"] = copy * static_cast<double>(state.iterations()) / seconds;
}

// The arguments are the number of channels and the side of the images of EfficientNet-B0's layers, for 256 images.
#define LOCKSTEP_SQUEEZE_EXCITE_BENCH(name, ...)                       \
  void BM_##name(benchmark::State& state) { Run(state, __VA_ARGS__); } \
  BENCHMARK(BM_##name)                                                 \
      ->Args({32, 112})                                                \
      ->Args({96, 56})                                                 \
      ->Args({144, 28})                                                \
      ->Args({240, 14})                                                \
      ->Args({480, 14})                                                \
      ->Args({672, 14})                                                \
      ->Args({1152, 7})                                                \
      ->Iterations(3)                                                  \
      ->UseManualTime()

LOCKSTEP_SQUEEZE_EXCITE_BENCH(Forward, Squeeze, Excite, false);
LOCKSTEP_SQUEEZE_EXCITE_BENCH(ForwardAten, SqueezeTwin, ExciteTwin, false);
LOCKSTEP_SQUEEZE_EXCITE_BENCH(Backward, Squeeze, Excite, true);
LOCKSTEP_SQUEEZE_EXCITE_BENCH(BackwardAten, SqueezeTwin, ExciteTwin, true);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
