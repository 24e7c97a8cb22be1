// Measures the share of the GPU's copy bandwidth that NormalizePixels() and NormalizePixelsTwin() reach. Run this
// benchmark with bazel run -c opt //ops/pixels:normalize_pixels_bench
//
// For each value, one byte is read, and four bytes (in bfloat16 two) are written. The reference is a device-to-device
// copy of as many bytes in the same run: `of_copy` is the copy's time divided by the measured time.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "ops/pixels/normalize_pixels.h"
#include "ops/testing/bench_clock.h"

namespace lockstep::ops {
namespace {

template <typename Normalize>
void Run(benchmark::State& state, const Normalize& normalize) {
  const at::Tensor pixels = at::randint(0, 256, {state.range(0), 3, 224, 224}, at::kByte).cuda();
  const at::Tensor scale = at::randn({3}).cuda();
  const at::Tensor shift = at::randn({3}).cuda();
  const auto dtype = static_cast<at::ScalarType>(state.range(1));
  const auto bytes = static_cast<int64_t>(pixels.numel() *
                                          (c10::elementSize(at::kByte) + c10::elementSize(dtype)));
  const double copy = static_cast<double>(bytes) / CopySeconds(bytes);
  // The kernel and NormalizePixelsTwin() may round a value to different neighbours.
  if (!at::allclose(normalize(pixels, scale, shift, dtype),
                    NormalizePixelsTwin(pixels, scale, shift, dtype),
                    dtype == at::kFloat ? 1e-6 : 1e-2, 1e-5)) {
    state.SkipWithError("wrong result");
  }
  double seconds = 0;
  for (auto _ : state) {
    const double once =
        DeviceSeconds([&] { benchmark::DoNotOptimize(normalize(pixels, scale, shift, dtype)); });
    state.SetIterationTime(once);
    seconds += once;
  }
  const double rate =
      static_cast<double>(bytes) * static_cast<double>(state.iterations()) / seconds;
  state.counters["GB/s"] = rate * 1e-9;
  state.counters["of_copy"] = rate / copy;
}

void BM_Kernel(benchmark::State& state) { Run(state, NormalizePixels); }
void BM_Twin(benchmark::State& state) { Run(state, NormalizePixelsTwin); }
void Cases(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"images", "dtype"})->UseManualTime();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t images : {64, 1024}) benchmark->Args({images, static_cast<int64_t>(dtype)});
  }
}
BENCHMARK(BM_Kernel)->Apply(Cases);
BENCHMARK(BM_Twin)->Apply(Cases);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
