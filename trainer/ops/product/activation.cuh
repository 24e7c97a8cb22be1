// The activations' values and slopes, as the kernels compute them: in float32, by the GPU's approximations of
// exp and 1 / x, whose errors are those of float32's rounding.
#pragma once

#include "trainer/ops/product/activation.h"

namespace lockstep::ops {

// y = f(x) and dy/dx.
struct ActivationValue {
  float y;
  float slope;
};

// 1 / (1 + 2^(-x log2(e))), where 2^ may be 0 or infinity: two steps of the special function unit, without the
// scaling that __expf and __fdividef wrap theirs in.
__device__ inline float Sigmoid(float x) {
  constexpr float kLog2E = 1.4426950F;
  float power;
  float gate;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-kLog2E * x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(gate) : "f"(1 + power));
  return gate;
}

// x sigmoid(u(x)), with u's derivative.
__device__ inline ActivationValue Gated(float x, float u, float u_slope) {
  const float gate = Sigmoid(u);
  return {x * gate, gate + x * gate * (1 - gate) * u_slope};
}

template <Activation kActivation>
__device__ ActivationValue ActivationAt(float x) {
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

// GELU in its tanh form with the special function unit's tanh, which is off by up to 2^-11: y by up to 2^-12 |x|.
// For bfloat16, in which the x of 1 is off by 2^-9 already.
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
