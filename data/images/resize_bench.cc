// Measures a resize to 224 x 224 on one thread: bazel run -c opt //data/images:resize_bench
//
// An item is an image. Each call resizes a random crop of an image that is a little larger than the crop. The arguments
// of the benchmark are the width and the height of the crop. Every other crop is mirrored. The time includes making the
// filter tables.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "data/images/resize.h"

namespace lockstep {
namespace {

void BM_Resize(benchmark::State& state) {
  const int64_t box_width = state.range(0);
  const int64_t box_height = state.range(1);
  const int64_t size = 224;
  const int64_t margin = 16;
  ImageView source = {.width = box_width + margin, .height = box_height + margin};
  source.stride = 3 * source.width;
  std::mt19937 random(1);
  std::vector<uint8_t> pixels(source.stride * source.height);
  for (uint8_t& byte : pixels) byte = static_cast<uint8_t>(random());
  source.pixels = pixels.data();
  std::vector<uint8_t> output(3 * size * size);
  Resizer resizer;

  // The source consists of random bytes, whose mean is 127.5, so the output must have nearly this mean.
  const Box whole = {0, 0, static_cast<double>(source.width), static_cast<double>(source.height)};
  resizer.Resize(source, whole, size, size, false, output.data());
  int64_t sum = 0;
  for (const uint8_t byte : output) sum += byte;
  if (std::abs(sum / static_cast<double>(output.size()) - 127.5) > 1) {
    state.SkipWithError("the result is wrong");
    return;
  }

  bool mirror = false;
  for (auto _ : state) {
    const Box box = {static_cast<double>(random() % margin), static_cast<double>(random() % margin),
                     static_cast<double>(box_width), static_cast<double>(box_height)};
    resizer.Resize(source, box, size, size, mirror, output.data());
    mirror = !mirror;
    benchmark::DoNotOptimize(output.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_Resize)
    ->ArgNames({"width", "height"})
    ->Args({370, 275})     // an average crop of an ImageNet picture
    ->Args({100, 80})      // a crop that is enlarged
    ->Args({2000, 1500});  // a crop that is much reduced

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
