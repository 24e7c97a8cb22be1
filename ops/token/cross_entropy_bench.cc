// The kernels' share of the GPU's copy bandwidth, beside their ATen twin:
// bazel run -c opt //ops/token:cross_entropy_bench
//
// Bytes: where the gradient is given beforehand each logit is read once and written once, 4 bytes
// for one of 16 bits; in two passes forward reads it besides, 6 bytes. The limit is what a
// device-to-device copy of as many bytes reaches in the same run: `of_copy` is the rate over that.
// The twin does the same in more bytes; its `of_copy` is its rate in terms of the 6.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "base/ceil_divide.h"
#include "ops/testing/bench_clock.h"
#include "ops/token/cross_entropy.h"

namespace lockstep::ops {
namespace {

// loss: (logits, target, classes, gradient) -> loss, of which `bytes` a logit are counted.
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
    const at::Tensor input = logits.clone();  // the gradient may be written over it
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
// GPT-2's rows, two lengths from where long rows begin, and ResNet's rows.
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
