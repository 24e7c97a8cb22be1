// The kernel's share of the GPU's copy bandwidth, beside its ATen twin:
// bazel run -c opt //trainer/ops:normalize_pixels_bench
//
// Bytes: one read and four written for each pixel, each once. The limit is what a device-to-device
// copy of the same number of bytes reaches, which is measured in the same run: `of_copy` is the
// kernel's rate over that.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "trainer/ops/bench_clock.h"
#include "trainer/ops/normalize_pixels.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kBytesPerPixel = 5;

template <typename Normalize>
void Run(benchmark::State& state, const Normalize& normalize) {
  const at::Tensor pixels = at::randint(0, 256, {state.range(0), 3, 224, 224}, at::kByte).cuda();
  const at::Tensor scale = at::randn({3}).cuda();
  const at::Tensor shift = at::randn({3}).cuda();
  const int64_t bytes = pixels.numel() * kBytesPerPixel;
  const double copy = static_cast<double>(bytes) / CopySeconds(bytes);
  if (!at::allclose(normalize(pixels, scale, shift), NormalizePixelsTwin(pixels, scale, shift),
                    1e-6, 1e-5)) {
    state.SkipWithError("wrong result");
  }
  double seconds = 0;
  for (auto _ : state) {
    const double once =
        DeviceSeconds([&] { benchmark::DoNotOptimize(normalize(pixels, scale, shift)); });
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
BENCHMARK(BM_Kernel)->Arg(64)->Arg(1024)->UseManualTime();
BENCHMARK(BM_Twin)->Arg(64)->Arg(1024)->UseManualTime();

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
