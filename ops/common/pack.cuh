// Loads and stores packs of 16 bytes of float32, float16 or bfloat16 values, and converts the values to and from
// float32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ops/common/float_type.h"

namespace lockstep::ops {

// The values of one load or store: by default as many values as fit in 16 bytes.
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

// Returns whether a pointer is aligned to packs of `bytes` bytes. A null pointer counts as aligned.
__host__ __device__ inline bool IsAligned(const void* pointer, size_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Returns the two bfloat16 values in a word as floats. The compiler's code for a conversion would need two instructions
// for the upper value.
__device__ inline float2 BFloat16Pair(unsigned word) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000U)};
}

// Loads a pack into registers as 32-bit words. If the pack were loaded as 16-bit values, the compiler would use a
// register for each value.
__device__ inline uint4 Load(const void* row, int64_t pack) {
  return static_cast<const uint4*>(row)[pack];
}

// The type of the words in which a pack of 16 or of 8 bytes is loaded. A pack of 8 bytes has four 16-bit values, which
// belong to the same columns as a pack of four float32 values.
template <typename T, int kCount>
using PackWords = std::conditional_t<sizeof(Pack<T, kCount>) == sizeof(uint4), uint4, uint2>;

template <typename T, int kCount>
__device__ PackWords<T, kCount> LoadWords(const void* row, int64_t pack) {
  return static_cast<const PackWords<T, kCount>*>(row)[pack];
}

template <typename T>
__device__ Pack<T> Unpack(const uint4& words) {
  return __builtin_bit_cast(Pack<T>, words);
}
template <typename T>
__device__ Pack<T, sizeof(uint2) / sizeof(T)> Unpack(const uint2& words) {
  return __builtin_bit_cast(Pack<T, sizeof(uint2) / sizeof(T)>, words);
}

template <typename T, int kCount>
__device__ void Store(void* row, int64_t pack, const Pack<T, kCount>& values) {
  static_cast<PackWords<T, kCount>*>(row)[pack] = __builtin_bit_cast(PackWords<T, kCount>, values);
}

// Loads the float32 values, such as weights, that belong to the columns of a pack of kSize columns.
template <int kSize>
__device__ void LoadWeights(const float* weights, int64_t pack, float (&values)[kSize]) {
#pragma unroll
  for (int j = 0; j < kSize; j += 4) {
    const Pack<float> four = Unpack<float>(Load(weights, (pack * kSize + j) / 4));
#pragma unroll
    for (int k = 0; k < 4; ++k) values[j + k] = four.values[k];
  }
}

// Calls launch() with a value of the C++ type that belongs to `type`.
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

// Calls launch() like WithType(), but only for the two 16-bit types.
template <typename Launch>
auto With16Bits(FloatType type, const Launch& launch) {
  return type == FloatType::kBFloat16 ? launch(__nv_bfloat16()) : launch(__half());
}

}  // namespace lockstep::ops
