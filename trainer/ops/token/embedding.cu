#include <cmath>

#include "base/ceil_divide.h"
#include "trainer/ops/common/pack.cuh"
#include "trainer/ops/token/embedding_kernel.h"

namespace lockstep::ops {
namespace {

// Blocks of 8 warps: in the forward each has a row, in the backward a share of the counts.
constexpr int kLanes = 32;
constexpr int kWarps = 8;
// Loads of a thread in flight.
constexpr int kAtOnce = 4;
// Columns that a thread takes together.
constexpr int kPackSize = 4;

template <int kSize>
__device__ void AtomicAdd(float* to, const Pack<float, kSize>& x) {
#if __CUDA_ARCH__ >= 900
  constexpr bool kVector = kSize == 4;
#else
  constexpr bool kVector = false;
#endif
  if constexpr (kVector) {
#if __CUDA_ARCH__ >= 900
    atomicAdd(reinterpret_cast<float4*>(to),
              make_float4(x.values[0], x.values[1], x.values[2], x.values[3]));
#endif
  } else {
#pragma unroll
    for (int j = 0; j < kSize; ++j) atomicAdd(to + j, x.values[j]);
  }
}

// A warp writes a row of the output. A token that is not in the vocabulary gives NaN.
template <typename T, int kSize>
__global__ void __launch_bounds__(kLanes* kWarps)
    Forward(const int64_t* __restrict__ tokens, const float* __restrict__ token_weight,
            const float* __restrict__ position_weight, T* __restrict__ out, EmbeddingShape shape) {
  const int64_t row = blockIdx.x * int64_t{kWarps} + threadIdx.y;
  if (row >= shape.count * shape.length) return;
  const int64_t token = tokens[row];
  const bool known = token >= 0 && token < shape.vocabulary;
  const float* a = token_weight + (known ? token : 0) * shape.width;
  const float* b = position_weight + row % shape.length * shape.width;
  T* y = out + row * shape.width;
#pragma unroll 4
  for (int64_t i = threadIdx.x * kSize; i < shape.width; i += kLanes * kSize) {
    Pack<float, kSize> sum;
    if (known) {
      sum = *reinterpret_cast<const Pack<float, kSize>*>(a + i);
    } else {
#pragma unroll
      for (int j = 0; j < kSize; ++j) sum.values[j] = NAN;
    }
    const Pack<float, kSize> position = *reinterpret_cast<const Pack<float, kSize>*>(b + i);
    Pack<T, kSize> rounded;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      rounded.values[j] = FromFloat<T>(sum.values[j] + position.values[j]);
    }
    *reinterpret_cast<Pack<T, kSize>*>(y + i) = rounded;
  }
}

// Block (l, n): columns from n * 32 * kSize on, of position l. Warp w adds up counts w, w + 8, ...,
// then the first warp adds up the warps, always in the same order.
template <typename T, int kSize, bool kTokens>
__global__ void __launch_bounds__(kLanes* kWarps)
    Backward(const T* __restrict__ d_out, const int64_t* __restrict__ tokens, float* token_gradient,
             SumsTo position_gradient, EmbeddingShape shape) {
  const int64_t position = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * kLanes + threadIdx.x) * kSize;
  Pack<float, kSize> sum;
#pragma unroll
  for (int j = 0; j < kSize; ++j) sum.values[j] = 0;
  const int64_t counts = position < shape.length && column < shape.width ? shape.count : 0;
  for (int64_t first = threadIdx.y; first < counts; first += kWarps * kAtOnce) {
    Pack<T, kSize> held[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t c = first + k * kWarps;
      if (c < counts) {
        held[k] = *reinterpret_cast<const Pack<T, kSize>*>(
            d_out + (c * shape.length + position) * shape.width + column);
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t c = first + k * kWarps;
      if (c < counts) {
        Pack<float, kSize> d;
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
          d.values[j] = ToFloat(held[k].values[j]);
          sum.values[j] += d.values[j];
        }
        if constexpr (kTokens) {
          const int64_t token = tokens[c * shape.length + position];
          if (token >= 0 && token < shape.vocabulary) {
            AtomicAdd(token_gradient + token * shape.width + column, d);
          }
        }
      }
    }
  }

  __shared__ Pack<float, kSize> warps[kWarps][kLanes];
  warps[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= shape.width) return;
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) {
#pragma unroll
    for (int j = 0; j < kSize; ++j) sum.values[j] += warps[warp][threadIdx.x].values[j];
  }
  auto* to = reinterpret_cast<Pack<float, kSize>*>(position_gradient.sums + position * shape.width +
                                                   column);
  if (position_gradient.adds) {
#pragma unroll
    for (int j = 0; j < kSize; ++j) sum.values[j] += to->values[j];
  }
  *to = sum;
}

template <typename T>
void ForwardOf(const int64_t* tokens, const float* token_weight, const float* position_weight,
               void* out, const EmbeddingShape& shape, cudaStream_t stream) {
  const bool packed = shape.width % kPackSize == 0 && IsAligned(token_weight, 16) &&
                      IsAligned(position_weight, 16) && IsAligned(out, kPackSize * sizeof(T));
  const auto kernel = packed ? Forward<T, kPackSize> : Forward<T, 1>;
  const int64_t blocks = CeilDivide(shape.count * shape.length, kWarps);
  kernel<<<static_cast<unsigned>(blocks), dim3(kLanes, kWarps), 0, stream>>>(
      tokens, token_weight, position_weight, static_cast<T*>(out), shape);
}

template <typename T, bool kTokens>
void BackwardOf(const void* d_out, const int64_t* tokens, float* token_gradient,
                const SumsTo& position_gradient, const EmbeddingShape& shape, cudaStream_t stream) {
  const bool packed = shape.width % kPackSize == 0 && IsAligned(d_out, kPackSize * sizeof(T)) &&
                      IsAligned(token_gradient, 16) && IsAligned(position_gradient.sums, 16);
  const auto kernel = packed ? Backward<T, kPackSize, kTokens> : Backward<T, 1, kTokens>;
  const int64_t columns = kLanes * (packed ? kPackSize : 1);
  const dim3 blocks(static_cast<unsigned>(shape.positions),
                    static_cast<unsigned>(CeilDivide(shape.width, columns)));
  kernel<<<blocks, dim3(kLanes, kWarps), 0, stream>>>(static_cast<const T*>(d_out), tokens,
                                                      token_gradient, position_gradient, shape);
}

template <typename T>
void BackwardOf(const void* d_out, const int64_t* tokens, float* token_gradient,
                const SumsTo& position_gradient, const EmbeddingShape& shape, cudaStream_t stream) {
  const auto launch = token_gradient != nullptr ? BackwardOf<T, true> : BackwardOf<T, false>;
  launch(d_out, tokens, token_gradient, position_gradient, shape, stream);
}

}  // namespace

void LaunchEmbedding(const int64_t* tokens, const float* token_weight, const float* position_weight,
                     void* out, FloatType type, const EmbeddingShape& shape, cudaStream_t stream) {
  if (shape.count * shape.length * shape.width == 0) return;
  WithType(type, [&](auto zero) {
    ForwardOf<decltype(zero)>(tokens, token_weight, position_weight, out, shape, stream);
  });
}

void LaunchEmbeddingBackward(const void* d_out, FloatType type, const int64_t* tokens,
                             float* token_gradient, const SumsTo& position_gradient,
                             const EmbeddingShape& shape, cudaStream_t stream) {
  if (shape.positions * shape.width == 0) return;
  WithType(type, [&](auto zero) {
    BackwardOf<decltype(zero)>(d_out, tokens, token_gradient, position_gradient, shape, stream);
  });
}

}  // namespace lockstep::ops
