// Measures the share of the GPU's copy bandwidth that the kernels reach, and that ATen's batch norm, addition and ReLU
// reach, in bf16. Run this benchmark with bazel run -c opt //ops/norm:batch_norm_bench
//
// For each bf16 value, forward moves 6 bytes (reads x twice, writes y), and backward moves 10 bytes (reads x and dy
// twice, writes dx). With the residual addition, forward moves 8 bytes (also reads the residual), and backward moves 12
// bytes (also writes the residual's gradient). For two joined norms, forward moves 10 bytes (reads both x twice, writes
// y), and backward moves 16 bytes (reads both x and dy twice, writes both dx); two separate norms would move 14 and 22
// bytes. The reference is a device-to-device copy of as many bytes in the same run: `of_copy` is the copy's time
// divided by the measured time. ATen moves more bytes, but its `of_copy` is computed with the same number of bytes.
// `Shared` times the kernels for ranks that share a batch, without communication.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/norm/batch_norm.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

using torch::autograd::variable_list;

at::TensorOptions Options() { return at::TensorOptions(at::kCUDA).dtype(at::kBFloat16); }

at::Tensor Images(const benchmark::State& state) {
  return at::randn({256, state.range(0), state.range(1), state.range(1)}, Options())
      .contiguous(at::MemoryFormat::ChannelsLast);
}

ChannelNorm Norm(const benchmark::State& state) {
  const int64_t channels = state.range(0);
  const at::TensorOptions floats = Options().dtype(at::kFloat);
  return {.weight = at::ones({channels}, floats).requires_grad_(),
          .bias = at::zeros({channels}, floats).requires_grad_(),
          .running_mean = at::zeros({channels}, floats),
          .running_var = at::ones({channels}, floats),
          .num_batches_tracked = at::zeros({}, Options().dtype(at::kLong)),
          .counters = NewNormCounters(channels, at::kCUDA)};
}

// Times forward(), or, if `backward` is true, the computation of the gradients of `inputs`. `bytes` is the number of
// bytes that are moved for each value.
template <typename Forward>
void Time(benchmark::State& state, const Forward& forward, const variable_list& inputs,
          bool backward, int64_t bytes) {
  const at::Tensor y = forward();
  const at::Tensor dy = Images(state);
  const double copy = GraphCopySeconds(y.numel() * bytes);
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

template <typename Function>
void Run(benchmark::State& state, const Function& function, bool adds, bool backward) {
  const BenchStream stream;
  const at::Tensor x = Images(state).requires_grad_();
  const at::Tensor residual = adds ? Images(state).requires_grad_() : at::Tensor();
  const ChannelNorm norm = Norm(state);
  variable_list inputs = {x, norm.weight, norm.bias};
  if (adds) inputs.push_back(residual);
  Time(
      state, [&] { return function(x, norm, Activation::kRelu, residual); }, inputs, backward,
      backward ? (adds ? 12 : 10) : (adds ? 8 : 6));
}

template <typename Function>
void RunJoin(benchmark::State& state, const Function& function, bool backward) {
  const BenchStream stream;
  const at::Tensor x_a = Images(state).requires_grad_();
  const at::Tensor x_b = Images(state).requires_grad_();
  const ChannelNorm norm_a = Norm(state);
  const ChannelNorm norm_b = Norm(state);
  Time(
      state, [&] { return function(x_a, norm_a, x_b, norm_b); },
      {x_a, norm_a.weight, norm_a.bias, x_b, norm_b.weight, norm_b.bias}, backward,
      backward ? 16 : 10);
}

// The NormRanks of a batch that belongs to a single rank, so that nothing is communicated.
class Alone : public NormRanks {
 public:
  at::Tensor Gather(const at::Tensor& own) override { return own.unsqueeze(0); }
  void AddUp(const at::Tensor&) override {}
};

at::Tensor SharedBatchNorm(const at::Tensor& x, ChannelNorm norm, Activation activation,
                           const at::Tensor& residual) {
  static Alone alone;
  norm.ranks = &alone;
  return BatchNorm(x, norm, activation, residual);
}

// The arguments are the number of channels and the side of the images in ResNet-50's norms, for 256 images.
#define LOCKSTEP_BATCH_NORM_BENCH(name, run, ...)                      \
  void BM_##name(benchmark::State& state) { run(state, __VA_ARGS__); } \
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

LOCKSTEP_BATCH_NORM_BENCH(Forward, Run, BatchNorm, false, false);
LOCKSTEP_BATCH_NORM_BENCH(ForwardAten, Run, BatchNormTwin, false, false);
LOCKSTEP_BATCH_NORM_BENCH(Backward, Run, BatchNorm, false, true);
LOCKSTEP_BATCH_NORM_BENCH(BackwardAten, Run, BatchNormTwin, false, true);
LOCKSTEP_BATCH_NORM_BENCH(SharedForward, Run, SharedBatchNorm, false, false);
LOCKSTEP_BATCH_NORM_BENCH(SharedBackward, Run, SharedBatchNorm, false, true);
LOCKSTEP_BATCH_NORM_BENCH(AddForward, Run, BatchNorm, true, false);
LOCKSTEP_BATCH_NORM_BENCH(AddForwardAten, Run, BatchNormTwin, true, false);
LOCKSTEP_BATCH_NORM_BENCH(AddBackward, Run, BatchNorm, true, true);
LOCKSTEP_BATCH_NORM_BENCH(AddBackwardAten, Run, BatchNormTwin, true, true);
LOCKSTEP_BATCH_NORM_BENCH(JoinForward, RunJoin, JoinBatchNorms, false);
LOCKSTEP_BATCH_NORM_BENCH(JoinForwardAten, RunJoin, JoinBatchNormsTwin, false);
LOCKSTEP_BATCH_NORM_BENCH(JoinBackward, RunJoin, JoinBatchNorms, true);
LOCKSTEP_BATCH_NORM_BENCH(JoinBackwardAten, RunJoin, JoinBatchNormsTwin, true);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
