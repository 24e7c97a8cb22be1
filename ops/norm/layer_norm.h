// Computes layer normalisation and RMS normalisation, alone or after a residual addition. The weights are float32, even
// if the values have 16 bits. In NormOfWide() the residual sums are float32, while the branches and the normalised
// values have 16 bits.
//
// LayerNorm: y[r, c] = (x[r, c] - mean_r) rstd_r weight[c] + bias[c],
//            rstd_r = 1 / sqrt(variance_r + epsilon), where the variance is the biased one.
// RMSNorm:   y[r, c] = x[r, c] rstd_r weight[c],
//            rstd_r = 1 / sqrt(mean of x[r]^2 + epsilon), like torch.nn.RMSNorm (arXiv:1910.07467).
// All arithmetic is float32, and y is rounded once. Each run gives the same bits, because there are no atomics.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <utility>

namespace lockstep::ops {

// Return y of the formulas above, with x's shape and type, and with gradients for each input. `x` is [..., width] in
// any float type; `weight` and `bias` are float32 [width]. The kernels run for float32, float16 and bfloat16 on a GPU;
// in all other cases LayerNormTwin() or RmsNormTwin() runs.
at::Tensor LayerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon);
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// The branch of a residual network that is added to x before a norm. The branch is values + bias.
struct Branch {
  at::Tensor values;  // has x's shape, and x's type (in NormOfWide() the type `type`)
  at::Tensor bias;    // float32 [width], or undefined
};

// Return {sum, norm of sum}. Both results have gradients. sum is x + branch, rounded once to x's type. Forward is one
// kernel, and the kernels of backward also compute the gradient of the branch's bias. The sum is kept for backward, so
// nobody may write to it before backward.
std::pair<at::Tensor, at::Tensor> AddLayerNorm(const at::Tensor& x, const Branch& branch,
                                               const at::Tensor& weight, const at::Tensor& bias,
                                               double epsilon);
std::pair<at::Tensor, at::Tensor> AddRmsNorm(const at::Tensor& x, const Branch& branch,
                                             const at::Tensor& weight, double epsilon);

// The result of a norm whose input is float32 and whose output has 16 bits. This is the case under autocast, where the
// residual sums of a network are float32.
struct WideNorm {
  at::Tensor sum;   // x + branch in float32, or x if there is no branch
  at::Tensor y;     // the norm of sum, rounded to `type`
  at::Tensor wide;  // the unrounded y in float32; may be undefined if `wide` was false
};

// Computes LayerNorm, or RMSNorm if `bias` is undefined. `x` is float32 [..., width]. branch.values has the 16-bit type
// `type`, or is undefined. `wide` says whether WideNorm::wide is wanted. sum, y and wide have gradients. Forward is one
// kernel. Backward adds the gradients of y and wide in float32, and rounds the branch's gradient to `type`. Nobody may
// write to sum before backward.
WideNorm NormOfWide(const at::Tensor& x, const Branch& branch, const at::Tensor& weight,
                    const at::Tensor& bias, double epsilon, at::ScalarType type, bool wide);

// Compute the same results as the functions above with plain ATen calls, on any device. Tests compare the kernels with
// these functions. On the CPU, the functions above call these functions. A 16-bit x is normalised in float32. For a
// float32 x these functions call at::layer_norm and at::rms_norm.
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
