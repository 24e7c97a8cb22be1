// Layer normalisation and RMS normalisation, alone or after a residual addition, with float32
// weights beside 16-bit values.
//
// LayerNorm: y[r, c] = (x[r, c] - mean_r) rstd_r weight[c] + bias[c],
//            rstd_r = 1 / sqrt(variance_r + epsilon), the variance being the biased one.
// RMSNorm:   y[r, c] = x[r, c] rstd_r weight[c],
//            rstd_r = 1 / sqrt(mean of x[r]^2 + epsilon), as torch.nn.RMSNorm (arXiv:1910.07467).
// All arithmetic is float32, and y is rounded once. The bits are the same each time, because there are no atomics.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace lockstep::ops {

// x: [..., width] in any float type; weight, bias: float32 [width]. -> y, of x's shape and type,
// with gradients for each of them. The kernels are for float32, float16 and bfloat16 on a GPU; else
// the twin.
at::Tensor LayerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon);
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// What is added to x before a norm: values + bias.
struct Branch {
  at::Tensor values;  // of x's shape and type
  at::Tensor bias;    // float32 [width], or undefined
};

// -> {sum = x + branch in x's type, rounded once, the norm of sum}, both with gradients. One kernel
// in each direction, which has the bias's gradient at no cost. The sum is kept for backward and
// must not be written to before it.
std::pair<at::Tensor, at::Tensor> AddLayerNorm(const at::Tensor& x, const Branch& branch,
                                               const at::Tensor& weight, const at::Tensor& bias,
                                               double epsilon);
std::pair<at::Tensor, at::Tensor> AddRmsNorm(const at::Tensor& x, const Branch& branch,
                                             const at::Tensor& weight, double epsilon);

// The plain ATen twins, on any device: what the kernels are compared with, and the CPU's path.
// 16-bit x is normalised in float32; for float32 x the twins are at::layer_norm and at::rms_norm.
at::Tensor LayerNormTwin(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         double epsilon);
at::Tensor RmsNormTwin(const at::Tensor& x, const at::Tensor& weight, double epsilon);
std::pair<at::Tensor, at::Tensor> AddLayerNormTwin(const at::Tensor& x, const Branch& branch,
                                                   const at::Tensor& weight, const at::Tensor& bias,
                                                   double epsilon);
std::pair<at::Tensor, at::Tensor> AddRmsNormTwin(const at::Tensor& x, const Branch& branch,
                                                 const at::Tensor& weight, double epsilon);

}  // namespace lockstep::ops
