// Measures the time that the sampler takes for one index and for a micro-batch: bazel run -c opt
// //data/feed:sampler_bench

#include <benchmark/benchmark.h>

#include "data/dataset/permutation.h"
#include "data/feed/sampler.h"

namespace lockstep {
namespace {

// Measures one call of Of() for a permutation of state.range(0) samples.
void BM_Permutation(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Permutation permutation(n, 1, 0);
  int64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(permutation.Of(position));
    if (++position == n) position = 0;
  }
}
BENCHMARK(BM_Permutation)->Arg(1797)->Arg(1'281'167)->Arg(1'000'000'000'000);

// Measures a whole micro-batch of 32 indices.
void BM_MicroBatchOf32(benchmark::State& state) {
  Sampler sampler({.samples = state.range(0), .global_batch = 64, .ranks = 2});
  for (auto _ : state) benchmark::DoNotOptimize(sampler.Next());
}
BENCHMARK(BM_MicroBatchOf32)->Arg(1797)->Arg(1'000'000'000'000);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
