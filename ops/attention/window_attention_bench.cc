// Times forward and backward of attention within windows, with WindowAttention() and with WindowAttentionTwin(), in the
// shapes of Swin-T's stages with 128 images. Run this benchmark with bazel run -c opt
// //ops/attention:window_attention_bench
//
// The reference is a device-to-device copy of as many bytes as the kernels have to move. For each value of out, forward
// reads 3 values and writes 1, and backward reads 4 and writes 3. `share` is the copy's time divided by the measured
// time.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "ops/attention/window_attention.h"
#include "ops/testing/bench_clock.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kTokens = 49;
constexpr int64_t kSize = 32;

template <typename Attention>
void Run(benchmark::State& state, const Attention& attention) {
  const BenchStream stream;
  const int64_t windows = state.range(0);
  const int64_t heads = state.range(1);
  const int64_t kinds = state.range(2);
  const bool backward = state.range(3) != 0;
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::TensorOptions floats = options.dtype(at::kFloat);
  const at::Tensor qkv = at::randn({windows, kTokens, 3 * heads * kSize}, options).requires_grad_();
  const at::Tensor bias = at::randn({heads, kTokens, kTokens}, floats).requires_grad_();
  const at::Tensor mask = kinds > 0 ? at::zeros({kinds, kTokens, kTokens}, floats) : at::Tensor();
  const at::Tensor d_out = at::randn({windows, kTokens, heads * kSize}, options);
  const auto results = [&](const auto& of) -> std::vector<at::Tensor> {
    if (!backward) {
      const at::NoGradGuard no_grad;
      return {of(qkv, heads, bias, mask)};
    }
    return torch::autograd::grad({of(qkv, heads, bias, mask)}, {qkv, bias}, {d_out});
  };
  const std::vector<at::Tensor> expected = results(WindowAttentionTwin);
  const std::vector<at::Tensor> found = results(attention);
  for (size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor exact = expected[i].to(at::kFloat);
    const double error = ((found[i] - exact).norm() / exact.norm()).item().toDouble();
    if (!(error < 1e-2)) return state.SkipWithError("the result is not the twin's");
  }

  double seconds = 0;
  for (auto _ : state) {
    const double once = GraphSeconds([&] { results(attention); });
    state.SetIterationTime(once);
    seconds += once;
  }
  const int64_t moved = (backward ? 4 + 7 : 4) * d_out.numel() * d_out.element_size();
  state.counters["share"] = CopySeconds(moved) * static_cast<double>(state.iterations()) / seconds;
}

// Sets the arguments: the numbers of windows, heads and masks, and 1 if backward is timed as well, otherwise 0.
void Stages(benchmark::internal::Benchmark* bench) {
  for (const int64_t backward : {0, 1}) {
    bench->Args({8192, 3, 64, backward})
        ->Args({8192, 3, 0, backward})
        ->Args({2048, 6, 16, backward})
        ->Args({512, 12, 4, backward})
        ->Args({128, 24, 0, backward});
  }
  bench->UseManualTime()->Iterations(5);
}

void BM_Fused(benchmark::State& state) { Run(state, WindowAttention); }
void BM_Twin(benchmark::State& state) { Run(state, WindowAttentionTwin); }
BENCHMARK(BM_Fused)->Apply(Stages);
BENCHMARK(BM_Twin)->Apply(Stages);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
