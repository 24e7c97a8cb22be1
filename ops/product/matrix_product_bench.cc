// Measures the share of the GPU's peak that GPT-2's matrix products reach, with MatrixProduct() and with ATen. Run this
// benchmark with bazel run -c opt //ops/product:matrix_product_bench
//
// The arguments are the numbers of tokens (16 and 64 texts of 1024 tokens), inputs and outputs. The last products are
// those of GPT-2's output layer (the head), whose weight is stored transposed. `of_peak` is the rate of the fastest of
// several replays of a CUDA graph, divided by the 989 TFLOP/s that an H100 or H200 reaches in dense bfloat16.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "ops/product/matrix_product.h"
#include "ops/testing/bench_graph.h"

namespace lockstep::ops {
namespace {

constexpr double kPeak_flops = 989e12;
constexpr int64_t kVocabulary = 50304;

enum class Pass { kForward, kInputGradient, kWeightGradient };

struct Operands {
  at::Tensor to, a, b, bias;
};

Operands Make(Pass pass, int64_t tokens, int64_t inputs, int64_t outputs) {
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const bool is_head = outputs == kVocabulary;
  const auto activations = [&](int64_t width) { return at::randn({tokens, width}, options); };
  // Returns the weight as [inputs, outputs]; the head's weight is a transposed view.
  const auto weight = [&](const at::TensorOptions& of) {
    return is_head ? at::randn({outputs, inputs}, of).t() : at::randn({inputs, outputs}, of);
  };
  switch (pass) {
    case Pass::kForward:
      return {at::empty({tokens, outputs}, options), activations(inputs), weight(options),
              is_head ? at::Tensor() : at::randn({outputs}, options)};
    case Pass::kInputGradient:
      return {at::empty({tokens, inputs}, options), activations(outputs), weight(options).t(), {}};
    default:
      return {weight(options.dtype(at::kFloat)), activations(inputs).t(), activations(outputs), {}};
  }
}

void Planned(const Operands& of) {
  MatrixProduct(of.to, of.a, of.b, {.adds = of.to.scalar_type() == at::kFloat, .bias = of.bias});
}

void Aten(const Operands& of) {
  at::Tensor to = of.to;
  if (to.scalar_type() == at::kFloat && !to.is_contiguous()) {
    // The gradient of a transposed weight is transposed as well, so the transposed product is computed.
    to = to.t();
    at::addmm_out(to, to, of.b.t(), of.a.t(), at::kFloat);
  } else if (to.scalar_type() == at::kFloat) {
    at::addmm_out(to, to, of.a, of.b, at::kFloat);
  } else if (of.bias.defined()) {
    at::addmm_out(to, of.bias, of.a, of.b);
  } else {
    at::mm_out(to, of.a, of.b);
  }
}

// Returns whether MatrixProduct() and ATen give the same result to within rounding in the first 64 rows.
bool AreSame(const Operands& of) {
  const auto rows = [&](void (*multiply)(const Operands&)) {
    if (of.to.scalar_type() == at::kFloat) of.to.zero_();
    multiply(of);
    return of.to.slice(0, 0, 64).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  };
  const at::Tensor expected = rows(Aten);
  return ((rows(Planned) - expected).abs().max() <= 0.01 * expected.abs().max()).item<bool>();
}

void Run(benchmark::State& state, void (*multiply)(const Operands&), Pass pass) {
  const BenchStream stream;
  const int64_t tokens = state.range(0);
  const int64_t inputs = state.range(1);
  const int64_t outputs = state.range(2);
  const Operands of = Make(pass, tokens, inputs, outputs);
  if (!AreSame(of)) return state.SkipWithError("differs from ATen's");
  double seconds = 0;
  for (auto _ : state) {
    const double once = GraphSeconds([&] { multiply(of); });
    state.SetIterationTime(once);
    seconds += once;
  }
  const double flops = 2.0 * static_cast<double>(tokens * inputs * outputs) *
                       static_cast<double>(state.iterations()) / seconds;
  state.counters["TFLOP/s"] = flops / 1e12;
  state.counters["of_peak"] = flops / kPeak_flops;
}

#define LOCKSTEP_PRODUCT_BENCH(name, ...)                              \
  void BM_##name(benchmark::State& state) { Run(state, __VA_ARGS__); } \
  BENCHMARK(BM_##name)                                                 \
      ->ArgsProduct({{16384, 65536}, {768}, {2304, 768, 3072}})        \
      ->ArgsProduct({{16384, 65536}, {3072}, {768}})                   \
      ->ArgsProduct({{16384, 65536}, {768}, {kVocabulary}})            \
      ->Iterations(3)                                                  \
      ->UseManualTime()

LOCKSTEP_PRODUCT_BENCH(Forward, Planned, Pass::kForward);
LOCKSTEP_PRODUCT_BENCH(ForwardAten, Aten, Pass::kForward);
LOCKSTEP_PRODUCT_BENCH(InputGradient, Planned, Pass::kInputGradient);
LOCKSTEP_PRODUCT_BENCH(InputGradientAten, Aten, Pass::kInputGradient);
LOCKSTEP_PRODUCT_BENCH(WeightGradient, Planned, Pass::kWeightGradient);
LOCKSTEP_PRODUCT_BENCH(WeightGradientAten, Aten, Pass::kWeightGradient);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
