// 16-byte loads and stores of the three float types, whose arithmetic is float32's.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "trainer/ops/float_type.h"

namespace lockstep::ops {

// As many values as one load of 16 bytes holds, unless told otherwise.
template <typename T, int kCount = 16 / sizeof(T)>
struct alignas(kCount * sizeof(T)) Pack {
  static constexpr int kSize = kCount;
  T values[kCount];
};

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(__half x) { return __half2float(x); }
__device__ inline float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ T FromFloat(float x);
template <>
__device__ inline float FromFloat(float x) {
  return x;
}
template <>
__device__ inline __half FromFloat(float x) {
  return __float2half(x);
}
template <>
__device__ inline __nv_bfloat16 FromFloat(float x) {
  return __float2bfloat16(x);
}

// For packs of so many bytes.
inline bool IsAligned(const void* pointer, size_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Calls launch with a value of the type that is meant.
template <typename Launch>
auto WithType(FloatType type, const Launch& launch) {
  switch (type) {
    case FloatType::kFloat16:
      return launch(__half());
    case FloatType::kBFloat16:
      return launch(__nv_bfloat16());
    case FloatType::kFloat32:
      break;
  }
  return launch(float());
}

}  // namespace lockstep::ops
