// Computes the values and the derivatives of the activations in the kernels. The arithmetic is float32. The GPU's
// approximations of exp and 1 / x are used, whose errors are about as small as the rounding errors of float32.
#pragma once

#include "ops/product/activation.h"

namespace lockstep::ops {

// The value y = f(x) of an activation, and the derivative dy/dx.
struct ActivationValue {
  float y;
  float slope;
};

// Computes 1 / (1 + 2^(-x log2(e))), where the power may be 0 or infinity. The function takes two instructions of the
// special function unit. __expf and __fdividef would take more instructions, which scale very small and very large
// values.
__device__ inline float Sigmoid(float x) {
  constexpr float kLog2E = 1.4426950F;
  float power;
  float gate;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-kLog2E * x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(gate) : "f"(1 + power));
  return gate;
}

// Returns x sigmoid(u(x)) and its derivative with respect to x. `u` is u(x), and `u_slope` is the derivative of u at x.
__device__ inline ActivationValue Gated(float x, float u, float u_slope) {
  const float gate = Sigmoid(u);
  return {x * gate, gate + x * gate * (1 - gate) * u_slope};
}

template <Activation kActivation>
__device__ ActivationValue ActivationAt(float x) {
  if constexpr (kActivation == Activation::kRelu) {
    // NaN stays NaN, as in ATen.
    return {x < 0 ? 0 : x, x <= 0 ? 0.0F : 1.0F};
  } else if constexpr (kActivation == Activation::kSilu) {
    return Gated(x, x, 1);
  } else if constexpr (kActivation == Activation::kHardswish) {
    constexpr float kSixth = 1.0F / 6;
    if (x <= -3) return {0, 0};
    if (x >= 3) return {x, 1};
    return {x * (x + 3) * kSixth, (2 * x + 3) * kSixth};
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

// Computes the tanh form of GELU with the tanh of the special function unit. This tanh has an error of up to 2^-11, so
// y has an error of up to 2^-12 |x|. The function is for bfloat16 only, where rounding alone gives y a relative error
// of up to 2^-8.
__device__ inline ActivationValue RoughGeluTanh(float x) {
  constexpr float kSlope = 0.79788456F;  // sqrt(2 / pi)
  constexpr float kCubic = 0.044715F * kSlope;
  float tanh;
  asm("tanh.approx.f32 %0, %1;" : "=f"(tanh) : "f"(x * (kCubic * x * x + kSlope)));
  const float half = 0.5F * x;
  const float u_slope = 3 * kCubic * x * x + kSlope;
  return {half * tanh + half, 0.5F * tanh + 0.5F + half * u_slope * (1 - tanh * tanh)};
}

}  // namespace lockstep::ops
