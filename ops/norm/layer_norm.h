// Layer normalisation and RMS normalisation, alone or after a residual addition, with float32 weights, also for 16-bit
// values. With 16-bit branches and results the residual sums may be float32 (NormOfWide()).
//
// LayerNorm: y[r, c] = (x[r, c] - mean_r) rstd_r weight[c] + bias[c],
//            rstd_r = 1 / sqrt(variance_r + epsilon), where the variance is the biased one.
// RMSNorm:   y[r, c] = x[r, c] rstd_r weight[c],
//            rstd_r = 1 / sqrt(mean of x[r]^2 + epsilon), like torch.nn.RMSNorm (arXiv:1910.07467).
// All arithmetic is float32, and y is rounded once. The bits are the same each time, because there are no atomics.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <utility>

namespace lockstep::ops {

// `x` is [..., width] in any float type; `weight` and `bias` are float32 [width]. Both functions return y, with x's
// shape and type, and with gradients for each input. The kernels run for float32, float16 and bfloat16 on a GPU; in all
// other cases the ATen version below runs.
at::Tensor LayerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon);
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// The branch that is added to x before a norm: values + bias.
struct Branch {
  at::Tensor values;  // has x's shape and type
  at::Tensor bias;    // float32 [width], or undefined
};

// Both functions return {sum, norm of sum}, both with gradients. sum is x + branch, rounded once to x's type. Forward
// and backward are one kernel each; backward's kernel also computes the gradient of the branch's bias. The sum is kept
// for backward, so nobody may write to it before backward.
std::pair<at::Tensor, at::Tensor> AddLayerNorm(const at::Tensor& x, const Branch& branch,
                                               const at::Tensor& weight, const at::Tensor& bias,
                                               double epsilon);
std::pair<at::Tensor, at::Tensor> AddRmsNorm(const at::Tensor& x, const Branch& branch,
                                             const at::Tensor& weight, double epsilon);

// The result of a norm whose input is float32 and whose output is 16-bit. Under autocast the residual sums of a network
// are float32.
struct WideNorm {
  at::Tensor sum;   // x + branch, float32; x where there is no branch
  at::Tensor y;     // the norm of sum, rounded to `type`
  at::Tensor wide;  // the unrounded y in float32, or undefined if it is not wanted
};

// Computes LayerNorm, or RMSNorm if `bias` is undefined. `x` is float32 [..., width]. branch.values has the 16-bit type
// `type`, or is undefined. `wide` says whether WideNorm::wide is wanted. sum, y and wide have gradients. Forward and
// backward are one kernel each. Backward adds the gradients of y and wide in float32, and rounds the branch's gradient
// to `type`. Nobody may write to sum before backward.
WideNorm NormOfWide(const at::Tensor& x, const Branch& branch, const at::Tensor& weight,
                    const at::Tensor& bias, double epsilon, at::ScalarType type, bool wide);

// Compute the same with plain ATen calls, on any device. Tests compare the kernels with them, and the CPU uses them. A
// 16-bit x is normalised in float32. For a float32 x these functions call at::layer_norm and at::rms_norm.
at::Tensor LayerNormTwin(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         double epsilon);
at::Tensor RmsNormTwin(const at::Tensor& x, const at::Tensor& weight, double epsilon);
std::pair<at::Tensor, at::Tensor> AddLayerNormTwin(const at::Tensor& x, const Branch& branch,
                                                   const at::Tensor& weight, const at::Tensor& bias,
                                                   double epsilon);
std::pair<at::Tensor, at::Tensor> AddRmsNormTwin(const at::Tensor& x, const Branch& branch,
                                                 const at::Tensor& weight, double epsilon);
WideNorm NormOfWideTwin(const at::Tensor& x, const Branch& branch, const at::Tensor& weight,
                        const at::Tensor& bias, double epsilon, at::ScalarType type);

}  // namespace lockstep::ops
