// Converts the values of packs (ops/common/pack.cuh) to and from floats.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/common/pack.cuh"

namespace lockstep::ops {

template <int kSize>
struct Floats {
  float values[kSize];
};

template <int kSize>
__device__ Floats<kSize> LoadFloats(const float* values, int64_t pack) {
  Floats<kSize> result;
  LoadWeights(values, pack, result.values);
  return result;
}

template <typename T>
__device__ Floats<Pack<T>::kSize> ToFloats(const uint4& words) {
  Floats<Pack<T>::kSize> result;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const Pack<uint32_t> pairs = Unpack<uint32_t>(words);
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; i += 2) {
      const float2 pair = BFloat16Pair(pairs.values[i / 2]);
      result.values[i] = pair.x;
      result.values[i + 1] = pair.y;
    }
  } else {
    const Pack<T> pack = Unpack<T>(words);
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) result.values[i] = ToFloat(pack.values[i]);
  }
  return result;
}

template <typename T>
__device__ Pack<T> FromFloats(const Floats<Pack<T>::kSize>& values) {
  Pack<T> result;
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) result.values[i] = FromFloat<T>(values.values[i]);
  return result;
}

}  // namespace lockstep::ops
