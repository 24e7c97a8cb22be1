// Measures the share of the GPU's copy bandwidth that ColumnSums() reaches, and that ATen's sum reaches. Run this
// benchmark with bazel run -c opt //ops/product:linear_bench
//
// Each bf16 value is read once; the few sums are not counted. The reference is a device-to-device copy in the same run.
// The copy reads and writes, in total, as many bytes as the sum reads: `of_copy` is the copy's time divided by the
// measured time.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "ops/product/linear.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

template <typename Function>
void Run(benchmark::State& state, const Function& function) {
  const BenchStream stream;
  const at::Tensor x = at::randn({state.range(0), state.range(1)},
                                 at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  const double copy = GraphCopySeconds(x.numel() * 2);
  double seconds = 0;
  for (auto _ : state) {
    const double once = GraphSeconds([&] { function(x); });
    state.SetIterationTime(once);
    seconds += once;
  }
  state.counters["of_copy"] = copy * static_cast<double>(state.iterations()) / seconds;
}

void BM_ColumnSums(benchmark::State& state) { Run(state, ColumnSums); }
void BM_Aten(benchmark::State& state) {
  Run(state, [](const at::Tensor& x) { return x.sum(0); });
}
BENCHMARK(BM_ColumnSums)
    ->Args({16384, 384})
    ->Args({16384, 3072})
    ->Args({65536, 768})
    ->Iterations(5)
    ->UseManualTime();
BENCHMARK(BM_Aten)
    ->Args({16384, 384})
    ->Args({16384, 3072})
    ->Args({65536, 768})
    ->Iterations(5)
    ->UseManualTime();

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
