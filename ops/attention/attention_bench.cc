// Times forward and backward of attention, with SelfAttention() and with SelfAttentionTwin(). The attention is causal,
// or has a mask that hides the last tokens of some sequences. Backward computes the gradient of queries, keys and
// values. Run this benchmark with bazel run -c opt //ops/attention:attention_bench
//
// `TFLOP/s` counts the operations of the matrix products, two in forward and five in backward. Each product has 2 *
// count * heads * size * tokens^2 operations, or half as many if the attention is causal. SelfAttention() and
// SelfAttentionTwin() compute the same products with the same backend. They differ in how queries, keys, values and
// their gradients are laid out and copied.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/attention/attention.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kSize = 64;

template <typename Attention>
void Run(benchmark::State& state, const Attention& attention, bool causal) {
  const BenchStream stream;
  const int64_t count = state.range(0);
  const int64_t tokens = state.range(1);
  const int64_t heads = state.range(2);
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor qkv = at::randn({count, tokens, 3 * heads * kSize}, options).requires_grad_();
  const at::Tensor d_out = at::randn({count, tokens, heads * kSize}, options);
  AttentionOptions how{.causal = causal};
  if (!causal) {
    how.mask = at::ones({count, 1, 1, tokens}, options.dtype(at::kBool));
    how.mask.slice(0, 0, count, 2).slice(3, tokens * 3 / 4).fill_(false);
  }
  const auto gradient = [&](const auto& of) {
    return torch::autograd::grad({of(qkv, heads, how)}, {qkv}, {d_out})[0];
  };
  const at::Tensor expected = gradient(SelfAttentionTwin).to(at::kFloat);
  const double error =
      ((gradient(attention) - expected).norm() / expected.norm()).item().toDouble();
  if (!(error < 1e-2)) return state.SkipWithError("the gradient is not the twin's");

  double seconds = 0;
  for (auto _ : state) {
    const double once = GraphSeconds([&] { gradient(attention); });
    state.SetIterationTime(once);
    seconds += once;
  }
  const double flop =
      (causal ? 7.0 : 14.0) * static_cast<double>(count * heads * kSize * tokens * tokens);
  state.counters["TFLOP/s"] = flop * static_cast<double>(state.iterations()) / seconds * 1e-12;
}

void BM_Fused(benchmark::State& state) { Run(state, SelfAttention, /*causal=*/true); }
void BM_Twin(benchmark::State& state) { Run(state, SelfAttentionTwin, /*causal=*/true); }
void BM_MaskedFused(benchmark::State& state) { Run(state, SelfAttention, /*causal=*/false); }
void BM_MaskedTwin(benchmark::State& state) { Run(state, SelfAttentionTwin, /*causal=*/false); }
BENCHMARK(BM_Fused)->Args({64, 256, 6})->Args({16, 1024, 12})->UseManualTime()->Iterations(5);
BENCHMARK(BM_Twin)->Args({64, 256, 6})->Args({16, 1024, 12})->UseManualTime()->Iterations(5);
BENCHMARK(BM_MaskedFused)
    ->Args({64, 128, 12})
    ->Args({16, 1024, 12})
    ->UseManualTime()
    ->Iterations(5);
BENCHMARK(BM_MaskedTwin)->Args({64, 128, 12})->Args({16, 1024, 12})->UseManualTime()->Iterations(5);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
