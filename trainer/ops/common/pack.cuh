// 16-byte loads and stores of the three float types, whose arithmetic is float32's.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "trainer/ops/common/float_type.h"

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

// For packs of so many bytes; null is, too.
__host__ __device__ inline bool IsAligned(const void* pointer, size_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// The values of two bf16 in a word, of which the compiler would take the upper one in two steps.
__device__ inline float2 BFloat16Pair(unsigned word) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000U)};
}

// A pack in registers, as words: the compiler would give each 16-bit value a register of its own.
__device__ inline uint4 Load(const void* row, int64_t pack) {
  return static_cast<const uint4*>(row)[pack];
}

template <typename T>
__device__ Pack<T> Unpack(const uint4& words) {
  return __builtin_bit_cast(Pack<T>, words);
}

template <typename T>
__device__ void Store(void* row, int64_t pack, const Pack<T>& values) {
  static_cast<uint4*>(row)[pack] = __builtin_bit_cast(uint4, values);
}

// The float32 values that belong to a pack's columns.
template <int kSize>
__device__ void LoadWeights(const float* weights, int64_t pack, float (&values)[kSize]) {
#pragma unroll
  for (int j = 0; j < kSize; j += 4) {
    const Pack<float> four = Unpack<float>(Load(weights, (pack * kSize + j) / 4));
#pragma unroll
    for (int k = 0; k < 4; ++k) values[j + k] = four.values[k];
  }
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
