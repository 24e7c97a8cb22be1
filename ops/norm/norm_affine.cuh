// The functions with which the kernels of batch_norm.h and norm_pool.h normalise a channel. rstd is 1 / sqrt(variance +
// epsilon). The backward of batch_norm.h computes again which values ReLU let pass, so forward and backward must round
// the norm in the same way.
#pragma once

#include <cstdint>

#include "ops/common/floats.cuh"

namespace lockstep::ops {

// The norm as one multiplication and one addition, norm(x) = x scale + shift, for the channels of one pack.
template <int kSize>
struct Affine {
  Floats<kSize> scale;
  Floats<kSize> shift;

  __device__ float operator()(float x, int i) const {
    return fmaf(x, scale.values[i], shift.values[i]);
  }
};

// Returns the Affine for the channels of one pack. `weight` and `bias` are [channels], and `statistics` is [2 channels
// + 1]: the batch's mean and rstd, and its number of rows.
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

// Computes the gradient of a norm's input: dx = scale dz + slope (x - mean) + constant = weight rstd (dz - mean of dz -
// x^ mean of dz x^), where dz is the gradient of the norm's result and x^ is (x - mean) rstd.
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

// Returns the InputGradient for the channels of one pack. `d_weights` is [2, channels]: the sums over the batch of dz
// x^ and of dz. `statistics` has the same meaning as for AffineOf().
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
