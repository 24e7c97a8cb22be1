// How the kernels of batch_norm.h and norm_pool.h normalise a channel. The backward of batch_norm.h computes again
// which values ReLU let pass, so forward and backward must round the norm in the same way.
#pragma once

#include <cstdint>
#include <type_traits>

#include "trainer/ops/common/pack.cuh"

namespace lockstep::ops {

// The values of a pack (trainer/ops/common/pack.cuh) as floats.
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

// The norm of one pack's channels: norm(x) = x scale + shift.
template <int kSize>
struct Affine {
  Floats<kSize> scale;
  Floats<kSize> shift;

  __device__ float operator()(float x, int i) const {
    return fmaf(x, scale.values[i], shift.values[i]);
  }
};

// Computes the Affine of one pack's channels from weight and bias, [channels] each, and the batch's statistics: mean
// and rstd, [channels] each.
template <int kSize>
__device__ Affine<kSize> AffineOf(const float* weight, const float* bias, const float* statistics,
                                  int64_t channels, int64_t pack) {
  const Floats<kSize> mean = LoadFloats<kSize>(statistics, pack);
  const Floats<kSize> rstd = LoadFloats<kSize>(statistics + channels, pack);
  Affine<kSize> affine{LoadFloats<kSize>(weight, pack), LoadFloats<kSize>(bias, pack)};
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    affine.scale.values[i] *= rstd.values[i];
    affine.shift.values[i] = fmaf(-mean.values[i], affine.scale.values[i], affine.shift.values[i]);
  }
  return affine;
}

// The gradient of a norm's input:
// dx = scale dz + slope (x - mean) + constant = weight rstd (dz - mean of dz - x^ mean of dz x^)
template <int kSize>
struct InputGradient {
  Floats<kSize> scale;
  Floats<kSize> mean;
  Floats<kSize> slope;
  Floats<kSize> constant;

  __device__ float operator()(float dz, float x, int i) const {
    return fmaf(scale.values[i], dz, fmaf(slope.values[i], x - mean.values[i], constant.values[i]));
  }
};

// Computes the InputGradient of one pack's channels. `d_weights` is [2, channels]: the sums over the batch of dz x^ and
// of dz.
template <int kSize>
__device__ InputGradient<kSize> InputGradientOf(const float* weight, const float* statistics,
                                                const float* d_weights, int64_t channels,
                                                int64_t pack) {
  InputGradient<kSize> result{LoadFloats<kSize>(weight, pack), LoadFloats<kSize>(statistics, pack),
                              LoadFloats<kSize>(d_weights, pack),
                              LoadFloats<kSize>(d_weights + channels, pack)};
  const Floats<kSize> rstd = LoadFloats<kSize>(statistics + channels, pack);
  const float share = 1 / statistics[2 * channels];
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    result.scale.values[i] *= rstd.values[i];
    const float scale = -result.scale.values[i] * share;
    result.slope.values[i] *= scale * rstd.values[i];
    result.constant.values[i] *= scale;
  }
  return result;
}

}  // namespace lockstep::ops
