#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "trainer/ops/cross_entropy_kernel.h"

namespace lockstep::ops {
namespace {

// A row is a block's: long rows keep many loads in flight, and there are always many rows.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// As many values as one load of 16 bytes holds.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T values[kSize];
};

__device__ float ToFloat(float x) { return x; }
__device__ float ToFloat(__half x) { return __half2float(x); }
__device__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ T FromFloat(float x);
template <>
__device__ float FromFloat(float x) {
  return x;
}
template <>
__device__ __half FromFloat(float x) {
  return __float2half(x);
}
template <>
__device__ __nv_bfloat16 FromFloat(float x) {
  return __float2bfloat16(x);
}

// The greatest value so far, and the sum of exp(value - greatest).
struct Running {
  float greatest = -INFINITY;
  float sum = 0;

  __device__ void Add(float x) {
    if (x > greatest) {
      sum = sum * __expf(greatest - x) + 1;
      greatest = x;
    } else {
      sum += __expf(x - greatest);
    }
  }
  __device__ void Add(const Running& other) {
    if (other.greatest == -INFINITY) return;
    const float top = fmaxf(greatest, other.greatest);
    sum = sum * __expf(greatest - top) + other.sum * __expf(other.greatest - top);
    greatest = top;
  }
};

// L and the loss of row blockIdx.x. kPacked: rows begin at multiples of 16 bytes.
template <typename T, bool kPacked>
__global__ void Forward(const T* logits, const int64_t* target, float* losses, LogSum* log_sums,
                        CrossEntropyShape shape) {
  const int64_t row = blockIdx.x;
  const T* x = logits + row * shape.columns;
  Running running;
  float plain_sum = 0;
  const auto add = [&](float value) {
    running.Add(value);
    plain_sum += value;
  };
  int64_t scalar_begin = 0;
  if constexpr (kPacked) {
    const int64_t packs = shape.classes / Pack<T>::kSize;
    for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
      const Pack<T> pack = reinterpret_cast<const Pack<T>*>(x)[i];
      // The greatest of the pack first: one rescaling for all of it.
      float values[Pack<T>::kSize];
      float top = running.greatest;
#pragma unroll
      for (int j = 0; j < Pack<T>::kSize; ++j) {
        values[j] = ToFloat(pack.values[j]);
        top = fmaxf(top, values[j]);
      }
      running.sum *= __expf(running.greatest - top);
      running.greatest = top;
#pragma unroll
      for (int j = 0; j < Pack<T>::kSize; ++j) {
        running.sum += __expf(values[j] - top);
        plain_sum += values[j];
      }
    }
    scalar_begin = packs * Pack<T>::kSize;
  }
  for (int64_t i = scalar_begin + threadIdx.x; i < shape.classes; i += kThreads) add(ToFloat(x[i]));

  for (int offset = 16; offset > 0; offset /= 2) {
    const Running other{__shfl_xor_sync(~0u, running.greatest, offset),
                        __shfl_xor_sync(~0u, running.sum, offset)};
    running.Add(other);
    plain_sum += __shfl_xor_sync(~0u, plain_sum, offset);
  }
  __shared__ Running warps[kWarps];
  __shared__ float warp_sums[kWarps];
  if (threadIdx.x % 32 == 0) {
    warps[threadIdx.x / 32] = running;
    warp_sums[threadIdx.x / 32] = plain_sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kWarps; ++warp) {
    running.Add(warps[warp]);
    plain_sum += warp_sums[warp];
  }
  const LogSum log_sum{running.greatest, logf(running.sum)};
  const int64_t t = target[row];
  const float chosen = t >= 0 && t < shape.classes ? ToFloat(x[t]) : NAN;
  const float mean = plain_sum / static_cast<float>(shape.classes);
  log_sums[row] = log_sum;
  losses[row] = log_sum.rest - (1 - shape.label_smoothing) * (chosen - log_sum.greatest);
  if (shape.label_smoothing > 0) losses[row] -= shape.label_smoothing * (mean - log_sum.greatest);
}

template <typename T, bool kPacked>
__global__ void Backward(T* logits, const int64_t* target, const LogSum* log_sums,
                         const float* gradient, CrossEntropyShape shape) {
  const int64_t row = blockIdx.x;
  T* x = logits + row * shape.columns;
  const LogSum log_sum = log_sums[row];
  const float scale = *gradient;
  const int64_t t = target[row];
  const float spread = shape.label_smoothing / static_cast<float>(shape.classes);
  const auto derivative = [&](float value, int64_t column) {
    if (column >= shape.classes) return 0.0F;
    const float wanted = spread + (column == t ? 1 - shape.label_smoothing : 0);
    return scale * (__expf(value - log_sum.greatest - log_sum.rest) - wanted);
  };
  int64_t scalar_begin = 0;
  if constexpr (kPacked) {
    const int64_t packs = shape.columns / Pack<T>::kSize;
    for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
      Pack<T> pack = reinterpret_cast<Pack<T>*>(x)[i];
#pragma unroll
      for (int j = 0; j < Pack<T>::kSize; ++j) {
        pack.values[j] = FromFloat<T>(derivative(ToFloat(pack.values[j]), i * Pack<T>::kSize + j));
      }
      reinterpret_cast<Pack<T>*>(x)[i] = pack;
    }
    scalar_begin = packs * Pack<T>::kSize;
  }
  for (int64_t i = scalar_begin + threadIdx.x; i < shape.columns; i += kThreads) {
    x[i] = FromFloat<T>(derivative(ToFloat(x[i]), i));
  }
}

template <typename T>
bool IsPacked(const void* logits, const CrossEntropyShape& shape) {
  return reinterpret_cast<uintptr_t>(logits) % sizeof(Pack<T>) == 0 &&
         shape.columns % Pack<T>::kSize == 0;
}

template <typename T>
void ForwardOf(const void* logits, const int64_t* target, float* losses, LogSum* log_sums,
               const CrossEntropyShape& shape, cudaStream_t stream) {
  const auto kernel = IsPacked<T>(logits, shape) ? Forward<T, true> : Forward<T, false>;
  kernel<<<static_cast<unsigned>(shape.rows), kThreads, 0, stream>>>(
      static_cast<const T*>(logits), target, losses, log_sums, shape);
}

template <typename T>
void BackwardOf(void* logits, const int64_t* target, const LogSum* log_sums, const float* gradient,
                const CrossEntropyShape& shape, cudaStream_t stream) {
  const auto kernel = IsPacked<T>(logits, shape) ? Backward<T, true> : Backward<T, false>;
  kernel<<<static_cast<unsigned>(shape.rows), kThreads, 0, stream>>>(
      static_cast<T*>(logits), target, log_sums, gradient, shape);
}

}  // namespace

void LaunchCrossEntropy(const void* logits, FloatType type, const int64_t* target, float* losses,
                        LogSum* log_sums, const CrossEntropyShape& shape, cudaStream_t stream) {
  if (shape.rows == 0) return;
  switch (type) {
    case FloatType::kFloat32:
      return ForwardOf<float>(logits, target, losses, log_sums, shape, stream);
    case FloatType::kFloat16:
      return ForwardOf<__half>(logits, target, losses, log_sums, shape, stream);
    case FloatType::kBFloat16:
      return ForwardOf<__nv_bfloat16>(logits, target, losses, log_sums, shape, stream);
  }
}

void LaunchCrossEntropyBackward(void* logits, FloatType type, const int64_t* target,
                                const LogSum* log_sums, const float* gradient,
                                const CrossEntropyShape& shape, cudaStream_t stream) {
  if (shape.rows == 0) return;
  switch (type) {
    case FloatType::kFloat32:
      return BackwardOf<float>(logits, target, log_sums, gradient, shape, stream);
    case FloatType::kFloat16:
      return BackwardOf<__half>(logits, target, log_sums, gradient, shape, stream);
    case FloatType::kBFloat16:
      return BackwardOf<__nv_bfloat16>(logits, target, log_sums, gradient, shape, stream);
  }
}

}  // namespace lockstep::ops
