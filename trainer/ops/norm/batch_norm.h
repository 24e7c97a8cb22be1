// BatchNorm with the statistics of the batch, together with the operations that follow it in a residual network: the
// addition of the other branch, and ReLU.
//
// y = relu((x - mean) / sqrt(variance + epsilon) weight + bias + residual), where mean and biased variance are those of
// a channel. All arithmetic is float32. The bits are the same each time, because the order of all sums is fixed.
// Backward must know which values ReLU passed. If there is no addition between the norm and ReLU, backward computes
// this again; after an addition, forward keeps one bit for each value. Of x, y and residual, backward reads only x.
//
// In the first block of each stage of a residual network, the other branch also ends in a norm. The two norms are then
// joined: one pass computes y = relu(norm_a(x_a) + norm_b(x_b)), and neither the result of norm_b nor its gradient is
// ever written.
//
// Ranks may share a batch: mean and variance are then computed over the rows of all ranks, and a rank may have no rows.
// The ranks communicate between the two passes of forward and of backward. Forward gathers the sums of each rank, and
// backward adds up the sums that dx needs. What the ranks send, and when they send it, does not depend on the number of
// their rows. It is also the same for the kernels and for the plain ATen version (the twin).
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/ops/product/activation.h"

namespace lockstep::ops {

// The ranks that share a batch. Each makes the same calls in the same order, with as many float32.
class NormRanks {
 public:
  virtual ~NormRanks() = default;
  // own: [size] -> [ranks, size].
  virtual at::Tensor Gather(const at::Tensor& own) = 0;
  // sums <- sum over ranks of sums.
  virtual void AddUp(const at::Tensor& sums) = 0;
};

struct ChannelNorm {
  at::Tensor weight, bias;  // float32 [channels]
  // float32 [channels], which follow this batch's; or undefined. A batch of one row must not have them,
  // unless it has ranks, and then does not move them: it has no unbiased variance.
  at::Tensor running_mean, running_var;
  // int64, 0-dimensional, to which 1 is added; or undefined.
  at::Tensor num_batches_tracked;
  // NewNormCounters(), which no two operations may use at the same time, as on two streams; or
  // undefined: the kernels then get new ones each time, which takes a kernel more.
  at::Tensor counters;
  // That share the batch, until the end of backward; null: it is this rank's own.
  NormRanks* ranks = nullptr;
  double epsilon = 1e-5;
  double momentum = 0.1;
};

// Throws c10::Error unless it is one that a norm may be followed by: kNone or kRelu.
void CheckNormActivation(Activation activation);

// x: [count, channels, ...] in any float type; residual: of x's shape and type, or undefined. activation:
// kNone or kRelu; any other throws c10::Error. -> y, of x's shape and type, with gradients for x, weight,
// bias and residual; weight's and bias's are this rank's sums. The kernels are for float32, float16 and
// bfloat16 on a GPU where x is [count, channels], or [count, channels, height, width] channels last, and
// where residual comes with ReLU; else the twin.
at::Tensor BatchNorm(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
                     const at::Tensor& residual = {});

// y = relu(norm_a(x_a) + norm_b(x_b)); the kernels round nothing but y. Norms whose ranks share a batch
// come one after the other, norm_b first.
// x_a: [count, channels, ...] in any float type; x_b: of x_a's shape and type. -> y, of x_a's shape
// and type, with gradients for x_a, x_b and each norm's weight and bias. The kernels are for the
// types and layouts that BatchNorm has them for; else the twin.
at::Tensor JoinBatchNorms(const at::Tensor& x_a, const ChannelNorm& norm_a, const at::Tensor& x_b,
                          const ChannelNorm& norm_b);

// What follows the norm: y + residual, where there is one, and `activation` of that, in y's memory. Throws as
// BatchNorm().
at::Tensor AddAndActivate(at::Tensor y, Activation activation, const at::Tensor& residual);

// What the kernels of one norm need besides: zeros, which each kernel leaves as zeros.
at::Tensor NewNormCounters(int64_t channels, at::Device device);

// Whether the kernels take x and the norm.
bool HasBatchNormKernels(const at::Tensor& x, const ChannelNorm& norm);

// Where they do: float32 [2 channels + 1], mean, 1 / sqrt(variance + epsilon) and the batch's number of
// rows; the running ones follow, and the batch is counted.
at::Tensor BatchStatistics(const at::Tensor& x, const ChannelNorm& norm);

// The plain ATen twin, on any device: what the kernels are compared with, and the CPU's path. Of ranks
// that share a batch, in float32 whatever x's type.
at::Tensor BatchNormTwin(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
                         const at::Tensor& residual = {});

// The twin of that, of two BatchNormTwins: what each gives is rounded to x_a's type.
at::Tensor JoinBatchNormsTwin(const at::Tensor& x_a, const ChannelNorm& norm_a,
                              const at::Tensor& x_b, const ChannelNorm& norm_b);

}  // namespace lockstep::ops
