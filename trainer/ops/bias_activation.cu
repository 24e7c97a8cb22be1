#include <algorithm>
#include <cmath>
#include <type_traits>

#include "trainer/ops/bias_activation_kernel.h"
#include "trainer/ops/pack.cuh"
#include "trainer/ops/partial_sums.cuh"

namespace lockstep::ops {
namespace {

// A block has a tile of 32 packs of columns and a slice of the rows, of which each warp takes every 8th.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kBlocksPerMultiprocessor = 3;
// Rows of a thread whose loads are in flight together.
constexpr int kUnroll = 4;

// y = f(x) and dy/dx.
struct Value {
  float y;
  float slope;
};

__device__ float Sigmoid(float x) { return __fdividef(1, 1 + __expf(-x)); }

// x sigmoid(u(x)), with u's derivative.
__device__ Value Gated(float x, float u, float u_slope) {
  const float gate = Sigmoid(u);
  return {x * gate, gate + x * gate * (1 - gate) * u_slope};
}

template <Activation kActivation>
__device__ Value At(float x) {
  if constexpr (kActivation == Activation::kRelu) {
    // NaN goes through, as in ATen.
    return {x < 0 ? 0 : x, x <= 0 ? 0.0F : 1.0F};
  } else if constexpr (kActivation == Activation::kSilu) {
    return Gated(x, x, 1);
  } else if constexpr (kActivation == Activation::kGelu) {
    constexpr float kSqrtHalf = 0.70710678F;
    constexpr float kDensityAtZero = 0.39894228F;  // 1 / sqrt(2 pi)
    const float phi = 0.5F * (1 + erff(x * kSqrtHalf));
    return {x * phi, phi + x * kDensityAtZero * __expf(-0.5F * x * x)};
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    constexpr float kTwice = 1.5957691F;  // 2 sqrt(2 / pi)
    constexpr float kCubic = 0.044715F;
    return Gated(x, kTwice * (x + kCubic * x * x * x), kTwice * (1 + 3 * kCubic * x * x));
  } else {
    return {x, 1};
  }
}

// What a pack is held in: words where it has 16 bytes, as the compiler would give each 16-bit value a
// register of its own.
template <typename T, int kSize>
using Held = std::conditional_t<kSize == 1, Pack<T, kSize>, uint4>;

// Calls load(row, u) for up to kUnroll of this thread's rows, then use(row, u) for the same.
template <typename LoadRow, typename UseRow>
__device__ void ForEachRow(int64_t rows, const LoadRow& load, const UseRow& use) {
  const int64_t step = int64_t{gridDim.y} * kWarps;
  for (int64_t first = int64_t{blockIdx.y} * kWarps + threadIdx.x / 32; first < rows;
       first += kUnroll * step) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * step < rows) load(first + u * step, u);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * step < rows) use(first + u * step, u);
    }
  }
}

// kSize: values of a pack, which the width is a multiple of.
template <Activation kActivation, typename T, int kSize>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    Forward(BiasActivationForward t, BiasActivationShape shape) {
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
  ForEachRow(
      shape.rows, [&](int64_t row, int u) { loaded[u] = x[row * packs]; },
      [&](int64_t row, int u) {
        auto values = __builtin_bit_cast(Pack<T, kSize>, loaded[u]);
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
          const float sum = ToFloat(values.values[j]) + bias[j];
          values.values[j] = FromFloat<T>(At<kActivation>(sum).y);
        }
        y[row * packs] = __builtin_bit_cast(Words, values);
      });
}

template <Activation kActivation, typename T, int kSize>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    Backward(BiasActivationBackward t, BiasActivationShape shape) {
  using Words = Held<T, kSize>;
  __shared__ float warps[kWarps][32 * kSize];
  const int lane = threadIdx.x % 32;
  const int64_t packs = shape.width / kSize;
  const int64_t pack = int64_t{blockIdx.x} * 32 + lane;
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
    ForEachRow(
        shape.rows,
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
            const float gradient = ToFloat(d.values[j]) * At<kActivation>(sum).slope;
            sums[j] += gradient;
            d.values[j] = FromFloat<T>(gradient);
          }
          dx[row * packs] = __builtin_bit_cast(Words, d);
        });
  }
  if (t.d_bias.sums == nullptr) return;
#pragma unroll
  for (int j = 0; j < kSize; ++j) warps[threadIdx.x / 32][lane * kSize + j] = sums[j];
  __syncthreads();
  for (int i = threadIdx.x; i < 32 * kSize; i += kThreads) {
    const int64_t column = int64_t{blockIdx.x} * 32 * kSize + i;
    if (column >= shape.width) return;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += warps[warp][i];
    t.partials[blockIdx.y * shape.width + column] = sum;
  }
}

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <Activation kActivation>
struct Chosen {
  static constexpr Activation kValue = kActivation;
};

// Calls launch with the activation as a type.
template <typename Launch>
void WithActivation(Activation activation, const Launch& launch) {
  switch (activation) {
    case Activation::kNone:
      return launch(Chosen<Activation::kNone>());
    case Activation::kRelu:
      return launch(Chosen<Activation::kRelu>());
    case Activation::kSilu:
      return launch(Chosen<Activation::kSilu>());
    case Activation::kGelu:
      return launch(Chosen<Activation::kGelu>());
    case Activation::kGeluTanh:
      return launch(Chosen<Activation::kGeluTanh>());
  }
}

dim3 Grid(int pack_size, const BiasActivationShape& shape) {
  return {static_cast<unsigned>(CeilDivide(shape.width, 32 * pack_size)),
          static_cast<unsigned>(BiasActivationSlices(shape))};
}

// Rows are made of packs of 16 bytes.
template <typename T, typename... Pointers>
bool IsPacked(const BiasActivationShape& shape, const Pointers*... pointers) {
  return shape.width % Pack<T>::kSize == 0 && (IsAligned(pointers) && ...);
}

}  // namespace

int64_t BiasActivationSlices(const BiasActivationShape& shape) {
  const int64_t tiles = CeilDivide(shape.width, 32 * Pack<__half>::kSize);
  const int64_t blocks = int64_t{shape.multiprocessors} * kBlocksPerMultiprocessor;
  return std::max(int64_t{1}, std::min(blocks / tiles, CeilDivide(shape.rows, kWarps)));
}

void LaunchBiasActivation(const BiasActivationForward& tensors, Activation activation,
                          FloatType type, const BiasActivationShape& shape, cudaStream_t stream) {
  if (shape.rows * shape.width == 0) return;
  WithActivation(activation, [&](auto chosen) {
    WithType(type, [&](auto zero) {
      using T = decltype(zero);
      constexpr Activation kActivation = decltype(chosen)::kValue;
      const bool packed = IsPacked<T>(shape, tensors.x, tensors.y);
      const auto kernel =
          packed ? Forward<kActivation, T, Pack<T>::kSize> : Forward<kActivation, T, 1>;
      kernel<<<Grid(packed ? Pack<T>::kSize : 1, shape), kThreads, 0, stream>>>(tensors, shape);
    });
  });
}

void LaunchBiasActivationBackward(const BiasActivationBackward& tensors, Activation activation,
                                  FloatType type, const BiasActivationShape& shape,
                                  cudaStream_t stream) {
  if (shape.width == 0) return;
  WithActivation(activation, [&](auto chosen) {
    WithType(type, [&](auto zero) {
      using T = decltype(zero);
      constexpr Activation kActivation = decltype(chosen)::kValue;
      const bool packed = IsPacked<T>(shape, tensors.x, tensors.dy, tensors.dx);
      const auto kernel =
          packed ? Backward<kActivation, T, Pack<T>::kSize> : Backward<kActivation, T, 1>;
      kernel<<<Grid(packed ? Pack<T>::kSize : 1, shape), kThreads, 0, stream>>>(tensors, shape);
    });
  });
  if (tensors.d_bias.sums == nullptr) return;
  LaunchSumPartials(tensors.partials, {tensors.d_bias}, BiasActivationSlices(shape), shape.width,
                    stream);
}

}  // namespace lockstep::ops
