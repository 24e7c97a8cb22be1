#include <type_traits>

#include "ops/common/pack.cuh"
#include "ops/common/partial_sums.cuh"
#include "ops/common/row_slices.cuh"
#include "ops/common/strided_rows.cuh"
#include "ops/product/activation.cuh"
#include "ops/product/bias_activation_kernel.h"

namespace lockstep::ops {
namespace {

constexpr int kBlocksPerMultiprocessor = 3;
// The number of rows whose loads a thread has in flight at once.
constexpr int kUnroll = 4;

// The type in which a thread holds a pack. A pack of 16 bytes is held as 32-bit words, because the compiler would
// otherwise give each 16-bit value a register of its own.
template <typename T, int kSize>
using Held = std::conditional_t<kSize == 1, Pack<T, kSize>, uint4>;

// Computes y = f(x + bias). kSize is the number of values of a pack, and shape.width is a multiple of kSize.
template <Activation kActivation, typename T, int kSize>
__global__ void __launch_bounds__(kSliceThreads, kBlocksPerMultiprocessor)
    Forward(BiasActivationForward t, RowsShape shape) {
  using Words = Held<T, kSize>;
  const int64_t packs = shape.width / kSize;
  const int64_t pack = int64_t{blockIdx.x} * 32 + threadIdx.x % 32;
  if (pack >= packs) return;
  const auto* x = static_cast<const Words*>(t.x) + pack;
  auto* y = static_cast<Words*>(t.y) + pack;
  float bias[kSize];
#pragma unroll
  for (int j = 0; j < kSize; ++j) bias[j] = t.bias[pack * kSize + j];
  Words loaded[kUnroll];
  ForEachRow<kUnroll>(
      RowsOfWarp(shape.rows), [&](int64_t row, int u) { loaded[u] = x[row * packs]; },
      [&](int64_t row, int u) {
        auto values = __builtin_bit_cast(Pack<T, kSize>, loaded[u]);
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
          const float sum = ToFloat(values.values[j]) + bias[j];
          values.values[j] = FromFloat<T>(ActivationAt<kActivation>(sum).y);
        }
        y[row * packs] = __builtin_bit_cast(Words, values);
      });
}

template <Activation kActivation, typename T, int kSize>
__global__ void __launch_bounds__(kSliceThreads, kBlocksPerMultiprocessor)
    Backward(BiasActivationBackward t, RowsShape shape) {
  using Words = Held<T, kSize>;
  const int64_t packs = shape.width / kSize;
  const int64_t pack = int64_t{blockIdx.x} * 32 + threadIdx.x % 32;
  float sums[kSize] = {};
  if (pack < packs) {
    const auto* x = static_cast<const Words*>(t.x) + pack;
    const auto* dy = static_cast<const Words*>(t.dy) + pack;
    auto* dx = static_cast<Words*>(t.dx) + pack;
    float bias[kSize];
#pragma unroll
    for (int j = 0; j < kSize; ++j) bias[j] = t.bias[pack * kSize + j];
    Words loaded[kUnroll];
    Words gradients[kUnroll];
    ForEachRow<kUnroll>(
        RowsOfWarp(shape.rows),
        [&](int64_t row, int u) {
          loaded[u] = x[row * packs];
          gradients[u] = dy[row * packs];
        },
        [&](int64_t row, int u) {
          const auto values = __builtin_bit_cast(Pack<T, kSize>, loaded[u]);
          auto d = __builtin_bit_cast(Pack<T, kSize>, gradients[u]);
#pragma unroll
          for (int j = 0; j < kSize; ++j) {
            const float sum = ToFloat(values.values[j]) + bias[j];
            const float gradient = ToFloat(d.values[j]) * ActivationAt<kActivation>(sum).slope;
            sums[j] += gradient;
            d.values[j] = FromFloat<T>(gradient);
          }
          dx[row * packs] = __builtin_bit_cast(Words, d);
        });
  }
  if (t.d_bias.sums == nullptr) return;
  SumWarps(sums, t.partials, shape.width);
}

template <Activation kActivation>
struct Chosen {
  static constexpr Activation kValue = kActivation;
};

// Calls launch() with the activation as a type, Chosen<...>.
template <typename Launch>
void WithActivation(Activation activation, const Launch& launch) {
  switch (activation) {
    case Activation::kNone:
      return launch(Chosen<Activation::kNone>());
    case Activation::kRelu:
      return launch(Chosen<Activation::kRelu>());
    case Activation::kSilu:
      return launch(Chosen<Activation::kSilu>());
    case Activation::kHardswish:
      return launch(Chosen<Activation::kHardswish>());
    case Activation::kGelu:
      return launch(Chosen<Activation::kGelu>());
    case Activation::kGeluTanh:
      return launch(Chosen<Activation::kGeluTanh>());
  }
}

dim3 Grid(int pack_size, const RowsShape& shape) {
  return SlicesGrid(shape, pack_size, BiasActivationSlices(shape));
}

}  // namespace

int64_t BiasActivationSlices(const RowsShape& shape) {
  return SliceCount(shape, Pack<__half>::kSize, kBlocksPerMultiprocessor);
}

void LaunchBiasActivation(const BiasActivationForward& tensors, Activation activation,
                          FloatType type, const RowsShape& shape, cudaStream_t stream) {
  if (shape.rows * shape.width == 0) return;
  WithActivation(activation, [&](auto chosen) {
    WithType(type, [&](auto zero) {
      using T = decltype(zero);
      constexpr Activation kActivation = decltype(chosen)::kValue;
      const bool packed = IsPacked<T>(shape, tensors.x, tensors.y);
      const auto kernel =
          packed ? Forward<kActivation, T, Pack<T>::kSize> : Forward<kActivation, T, 1>;
      kernel<<<Grid(packed ? Pack<T>::kSize : 1, shape), kSliceThreads, 0, stream>>>(tensors,
                                                                                     shape);
    });
  });
}

void LaunchBiasActivationBackward(const BiasActivationBackward& tensors, Activation activation,
                                  FloatType type, const RowsShape& shape, cudaStream_t stream) {
  if (shape.width == 0) return;
  WithActivation(activation, [&](auto chosen) {
    WithType(type, [&](auto zero) {
      using T = decltype(zero);
      constexpr Activation kActivation = decltype(chosen)::kValue;
      const bool packed = IsPacked<T>(shape, tensors.x, tensors.dy, tensors.dx);
      const auto kernel =
          packed ? Backward<kActivation, T, Pack<T>::kSize> : Backward<kActivation, T, 1>;
      kernel<<<Grid(packed ? Pack<T>::kSize : 1, shape), kSliceThreads, 0, stream>>>(tensors,
                                                                                     shape);
    });
  });
  LaunchSumPartials(tensors.partials, {tensors.d_bias}, BiasActivationSlices(shape), shape.width,
                    stream);
}

}  // namespace lockstep::ops
