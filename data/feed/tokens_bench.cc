// Measures how many bytes of tokens the loader puts into its slots each second, from a file in the page cache: bazel
// run -c opt //data/feed:tokens_bench
//
// The benchmark counts the bytes of the inputs and the targets, which are 64-bit integers in the slots. Slots are
// page-locked if there is a GPU.

#include <ATen/Context.h>
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "data/feed/loader.h"
#include "data/tokens/tokens.h"

namespace lockstep {
namespace {

void BM_Loader(benchmark::State& state) {
  constexpr int64_t kTokens = int64_t{32} << 20;
  constexpr int64_t kLength = 1024;
  char path[] = "/tmp/tokens_bench_XXXXXX";
  const int descriptor = mkstemp(path);
  if (descriptor < 0) return state.SkipWithError("no temporary file");
  {
    std::ofstream file(path, std::ios::binary);
    for (int64_t i = 0; i < kTokens; ++i) {
      const auto token = static_cast<uint16_t>(i * 7919 % 50257);
      file.write(reinterpret_cast<const char*>(&token), sizeof(token));
    }
  }
  const auto dataset = MapTokens({.files = {path}, .length = kLength});
  std::remove(path);
  const Sampler sampler({.samples = dataset->size(), .global_batch = 64});
  Loader loader(*dataset, sampler,
                {.threads = static_cast<int>(state.range(0)), .pinned = at::hasCUDA()});
  int64_t bytes = 0;
  for (auto _ : state) {
    const HostBatch batch = loader.Next();
    bytes += static_cast<int64_t>(batch.input.nbytes() + batch.target.nbytes());
    loader.Release();
  }
  state.SetBytesProcessed(bytes);
}
BENCHMARK(BM_Loader)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
