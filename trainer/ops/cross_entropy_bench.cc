// The kernels' share of the GPU's copy bandwidth, beside their ATen twin:
// bazel run -c opt //trainer/ops:cross_entropy_bench
//
// Bytes: forward reads each logit once, backward reads and writes it once: 6 bytes for one of 16 bits. The
// limit is what a device-to-device copy of as many bytes reaches in the same run: `of_copy` is the rate
// over that. The twin does the same in more bytes; its `of_copy` is its rate in terms of those 6.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "trainer/ops/bench_clock.h"
#include "trainer/ops/cross_entropy.h"

namespace lockstep::ops {
namespace {

template <typename Loss>
void Run(benchmark::State& state, const Loss& loss) {
  const int64_t rows = state.range(0);
  const int64_t classes = state.range(1);
  const int64_t columns = (classes + 127) / 128 * 128;
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor target = at::randint(classes, {rows}, options.dtype(at::kLong));
  at::Tensor logits = at::randn({rows, columns}, options).requires_grad_();
  const double copy = CopySeconds(rows * classes * 6);
  double seconds = 0;
  for (auto _ : state) {
    const at::Tensor input = logits * 1;  // the gradient may be written over it
    const double once = DeviceSeconds([&] { loss(input, target, classes, 0.0).backward(); });
    logits.mutable_grad() = at::Tensor();
    state.SetIterationTime(once);
    seconds += once;
  }
  state.counters["of_copy"] = copy * static_cast<double>(state.iterations()) / seconds;
}

void BM_Kernels(benchmark::State& state) { Run(state, CrossEntropySum); }
void BM_Twin(benchmark::State& state) { Run(state, CrossEntropySumTwin); }
BENCHMARK(BM_Kernels)->Args({16384, 50257})->Args({65536, 1000})->UseManualTime();
BENCHMARK(BM_Twin)->Args({16384, 50257})->Args({65536, 1000})->UseManualTime();

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
