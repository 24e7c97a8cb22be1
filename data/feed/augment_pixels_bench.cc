// Measures the share of the GPU's copy bandwidth that is reached by the augmentation kernels and by their twin (the
// plain PyTorch implementation AugmentPixelsTwin(), which serves as reference): bazel run -c opt
// //data/feed:augment_pixels_bench
//
// For each number of the output, the benchmark counts one byte that is read and four bytes that are written (two in
// bfloat16). The kernels read some images twice (those whose contrast changes, and those that are mixed into another
// image), but the benchmark counts only one read of each. The share therefore shows the cost of the changes, compared
// with plain normalisation (normalize_pixels_bench). The limit is the rate of a device-to-device copy of the same
// number of bytes, measured in the same run: `of_copy` is the kernels' or the twin's rate divided by the rate of this
// copy.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "data/feed/augment.h"
#include "ops/pixels/augment_pixels.h"
#include "ops/testing/bench_clock.h"

namespace lockstep::ops {
namespace {

constexpr ImageSize kImage{.width = 224, .height = 224};

AugmentOptions Jitter(double hue) {
  return {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = hue, .seed = 1};
}

AugmentOptions With(AugmentOptions options, double mixup, double cutmix) {
  options.mixup = mixup;
  options.cutmix = cutmix;
  return options;
}

at::Tensor DrawsFor(const AugmentOptions& options, int64_t count) {
  const at::Tensor draws = EmptyDraws(options, count, at::kCPU);
  for (int64_t n = 0; n < count; ++n) {
    DrawAugmentation(options, kImage, /*epoch=*/0, n, draws[n].mutable_data_ptr<float>());
  }
  return draws.cuda();
}

template <typename Augment>
void Run(benchmark::State& state, const Augment& augment, const AugmentOptions& options) {
  const int64_t count = state.range(0);
  const auto dtype = static_cast<at::ScalarType>(state.range(1));
  const at::Tensor pixels = at::randint(0, 256, {count, 3, kImage.height, kImage.width}, at::kByte)
                                .cuda()
                                .contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor draws = DrawsFor(options, count);
  const at::Tensor scale = at::full({3}, 1 / 60.0, at::kCUDA);
  const at::Tensor shift = at::full({3}, -2.0, at::kCUDA);
  const auto bytes = static_cast<int64_t>(pixels.numel() *
                                          (c10::elementSize(at::kByte) + c10::elementSize(dtype)));
  const double copy = static_cast<double>(bytes) / CopySeconds(bytes);
  // In bfloat16 `augment` and AugmentPixelsTwin() may round a number to different neighbours.
  if (!at::allclose(augment(pixels, draws, scale, shift, dtype),
                    AugmentPixelsTwin(pixels, draws, scale, shift, dtype),
                    dtype == at::kFloat ? 0 : 1e-2, 5e-5)) {
    state.SkipWithError("wrong result");
  }
  double seconds = 0;
  for (auto _ : state) {
    const double once = DeviceSeconds(
        [&] { benchmark::DoNotOptimize(augment(pixels, draws, scale, shift, dtype)); });
    state.SetIterationTime(once);
    seconds += once;
  }
  const double rate =
      static_cast<double>(bytes) * static_cast<double>(state.iterations()) / seconds;
  state.counters["GB/s"] = rate * 1e-9;
  state.counters["of_copy"] = rate / copy;
}

void Cases(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"images", "dtype"})->UseManualTime();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t images : {64, 1024}) benchmark->Args({images, static_cast<int64_t>(dtype)});
  }
}

BENCHMARK_CAPTURE(Run, kernel_mixup, AugmentPixels, With({}, 0.2, 0))->Apply(Cases);
BENCHMARK_CAPTURE(Run, kernel_cutmix, AugmentPixels, With({}, 0, 1))->Apply(Cases);
BENCHMARK_CAPTURE(Run, kernel_jitter_without_hue, AugmentPixels, Jitter(0))->Apply(Cases);
BENCHMARK_CAPTURE(Run, kernel_jitter, AugmentPixels, Jitter(0.1))->Apply(Cases);
BENCHMARK_CAPTURE(Run, kernel_jitter_and_mixup, AugmentPixels, With(Jitter(0.1), 0.2, 0))
    ->Apply(Cases);
BENCHMARK_CAPTURE(Run, twin_jitter, AugmentPixelsTwin, Jitter(0.1))
    ->ArgNames({"images", "dtype"})
    ->Args({64, static_cast<int64_t>(at::kFloat)})
    ->UseManualTime();

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
