// Times ToWindows() and FromWindows(), and ToWindowsTwin() and FromWindowsTwin(), in the shapes of Swin-T's stages with
// 128 images. Run this benchmark with bazel run -c opt //ops/attention:windows_bench
//
// The reference is a device-to-device copy of as many bytes as the kernels have to move: each value is read once and
// written once. `share` is the copy's time divided by the measured time.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include "ops/attention/windows.h"
#include "ops/testing/bench_clock.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kImages = 128;
constexpr int64_t kSize = 7;

template <typename To, typename From>
void Run(benchmark::State& state, const To& to, const From& from) {
  const BenchStream stream;
  const at::NoGradGuard no_grad;
  const int64_t side = state.range(0);
  const WindowCut cut{
      .height = kSize, .width = kSize, .down = state.range(2), .right = state.range(2)};
  const at::Tensor image = at::randn({kImages, side, side, state.range(1)},
                                     at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  const at::Tensor windows = ToWindowsTwin(image, cut);
  const bool back = state.range(3) != 0;
  const auto result = [&] { return back ? from(windows, side, side, cut) : to(image, cut); };
  if (!at::equal(result(), back ? image : windows)) {
    return state.SkipWithError("the result is not the twin's");
  }
  double seconds = 0;
  for (auto _ : state) {
    const double once = GraphSeconds([&] { result(); });
    state.SetIterationTime(once);
    seconds += once;
  }
  const int64_t moved = 2 * image.numel() * image.element_size();
  state.counters["share"] = CopySeconds(moved) * static_cast<double>(state.iterations()) / seconds;
}

// Sets the arguments: the side of an image in pixels, the number of channels, the shift, and 1 for FromWindows() or 0
// for ToWindows().
void Stages(benchmark::internal::Benchmark* bench) {
  for (const int64_t back : {0, 1}) {
    for (const int64_t shift : {0, 3}) {
      bench->Args({56, 96, shift, back})
          ->Args({28, 192, shift, back})
          ->Args({14, 384, shift, back});
    }
  }
  bench->UseManualTime()->Iterations(5);
}

void BM_Fused(benchmark::State& state) { Run(state, ToWindows, FromWindows); }
void BM_Twin(benchmark::State& state) { Run(state, ToWindowsTwin, FromWindowsTwin); }
BENCHMARK(BM_Fused)->Apply(Stages);
BENCHMARK(BM_Twin)->Apply(Stages);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
