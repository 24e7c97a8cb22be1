// Measures the share of the GPU's copy bandwidth that CrossEntropySum() and CrossEntropySumTwin() (the twin) reach. Run
// this benchmark with bazel run -c opt //ops/token:cross_entropy_bench
//
// If the gradient is given beforehand, each 16-bit logit is read once and written once, which moves 4 bytes. In two
// passes forward reads the logit once more, which makes 6 bytes. The reference is a device-to-device copy of as many
// bytes in the same run: `of_copy` is the copy's time divided by the measured time. The twin moves more bytes, but the
// twin's `of_copy` is computed with 6 bytes.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "base/ceil_divide.h"
#include "ops/testing/bench_clock.h"
#include "ops/token/cross_entropy.h"

namespace lockstep::ops {
namespace {

// Times loss() and backward. loss() is called with (logits, target, classes, gradient) and returns the loss. `bytes` is
// the number of bytes that are counted for each logit.
template <typename Loss>
void Run(benchmark::State& state, int64_t bytes, const Loss& loss) {
  const int64_t rows = state.range(0);
  const int64_t classes = state.range(1);
  const int64_t columns = RoundUp(classes, 128);
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor target = at::randint(classes, {rows}, options.dtype(at::kLong));
  const at::Tensor gradient =
      at::full({}, 1.0 / static_cast<double>(rows), options.dtype(at::kFloat));
  at::Tensor logits = at::randn({rows, columns}, options).requires_grad_();
  const double copy = CopySeconds(rows * classes * bytes);
  double seconds = 0;
  for (auto _ : state) {
    const at::Tensor input = logits.clone();  // a copy, because the gradient may overwrite `input`
    const double once =
        DeviceSeconds([&] { loss(input, target, classes, gradient).backward(gradient); });
    logits.mutable_grad() = at::Tensor();
    state.SetIterationTime(once);
    seconds += once;
  }
  state.SetBytesProcessed(state.iterations() * rows * classes * bytes);
  state.counters["of_copy"] = copy * static_cast<double>(state.iterations()) / seconds;
}

void BM_OnePass(benchmark::State& state) {
  Run(state, 4, [](const auto& logits, const auto& target, int64_t classes, const auto& gradient) {
    return CrossEntropySum(logits, target, classes, 0, gradient);
  });
}
void BM_TwoPasses(benchmark::State& state) {
  Run(state, 6, [](const auto& logits, const auto& target, int64_t classes, const auto&) {
    return CrossEntropySum(logits, target, classes, 0);
  });
}
void BM_Twin(benchmark::State& state) {
  Run(state, 6, [](const auto& logits, const auto& target, int64_t classes, const auto&) {
    return CrossEntropySumTwin(logits, target, classes, 0);
  });
}
// The arguments are the numbers of rows and of classes: those of GPT-2, two smaller numbers of classes whose rows still
// count as long (16 KiB or more), and those of ResNet.
BENCHMARK(BM_OnePass)
    ->Args({16384, 50257})
    ->Args({16384, 32000})
    ->Args({65536, 8192})
    ->Args({65536, 1000})
    ->UseManualTime();
BENCHMARK(BM_TwoPasses)->Args({16384, 50257})->Args({65536, 1000})->UseManualTime();
BENCHMARK(BM_Twin)->Args({16384, 50257})->Args({65536, 1000})->UseManualTime();

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
