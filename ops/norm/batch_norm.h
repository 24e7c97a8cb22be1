// Computes BatchNorm with the statistics of the batch, together with the operations that follow BatchNorm: the addition
// of the other branch of a residual network and ReLU, or an activation alone (ReLU, SiLU, hardswish).
//
// y = relu((x - mean) / sqrt(variance + epsilon) * weight + bias + residual), where mean and variance (the biased one)
// are those of x's values in a channel. All arithmetic is float32. Each run gives the same bits, because the order of
// all sums is fixed. Backward needs the slope of the activation. If the activation follows the norm directly, backward
// computes the slope again from x. If ReLU follows an addition, forward keeps one bit for each value, which says
// whether ReLU let the value pass. Backward reads x, but neither y nor residual.
//
// In the first block of each stage of a residual network, both branches end in a norm. JoinBatchNorms() joins these two
// norms: one pass computes y = relu(norm_a(x_a) + norm_b(x_b)), and neither the result of norm_b nor its gradient is
// ever written. Norms of a batch that ranks share are not joined.
//
// Ranks may share a batch: mean and variance are then computed over the rows of all ranks, and a rank may have no rows.
// The ranks communicate between the two passes of forward and of backward. Forward gathers the mean, the sum of squared
// differences from the mean, and the number of rows of each rank. Backward adds up, over the ranks, the sums that dx
// needs. The sizes and the order of a rank's messages do not depend on the rank's number of rows. The kernels and the
// plain ATen implementation (the twin) send the same messages in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/norm/norm_ranks.h"
#include "ops/product/activation.h"

namespace lockstep::ops {

struct ChannelNorm {
  at::Tensor weight, bias;  // float32 [channels]
  // The running statistics, float32 [channels], or undefined. The operation updates running_mean and running_var with
  // the batch's statistics. A batch of one row has no unbiased variance. If `ranks` is not null, a batch of one row
  // does not change the running statistics. If `ranks` is null, running_mean and running_var must be undefined for a
  // batch of one row.
  at::Tensor running_mean, running_var;
  // An int64 0-dimensional tensor to which the operation adds 1; or undefined.
  at::Tensor num_batches_tracked;
  // The result of NewNormCounters(). No two operations may use the same counters at the same time, for example on two
  // streams. If `counters` is undefined, each operation creates new counters, which takes one more kernel.
  at::Tensor counters;
  // The ranks that share the batch. The object must exist until the end of backward. Null if the batch belongs to this
  // rank alone.
  NormRanks* ranks = nullptr;
  double epsilon = 1e-5;
  double momentum = 0.1;
};

// Throws c10::Error unless `activation` may follow a norm. kNone, kRelu, kSilu and kHardswish may.
void CheckNormActivation(Activation activation);

// Computes y of the formula above, with x's shape and type. The result has gradients for x, weight, bias and residual.
// If ranks share the batch, the gradients of weight and bias are sums over this rank's rows only. `x` is [count,
// channels, ...] in any float type. `residual` has x's shape and type, or is undefined. For `activation` see
// CheckNormActivation(). The kernels run if HasBatchNormKernels() is true and, if there is a residual, `activation` is
// ReLU and the residual has x's memory layout. In all other cases BatchNormTwin() runs.
at::Tensor BatchNorm(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
                     const at::Tensor& residual = {});

// Computes y = relu(norm_a(x_a) + norm_b(x_b)). The kernels of the joined operation round only y. If ranks share the
// batch, the ranks exchange the statistics of norm_b before those of norm_a.
//
// `x_a` is [count, channels, ...] in any float type, and `x_b` has x_a's shape and type. y has x_a's shape and type,
// and gradients for x_a, x_b and the weights and biases of both norms. If ranks share the batch, BatchNorm() runs
// twice. Otherwise the kernels run for the types and layouts for which BatchNorm()'s kernels run; in all other cases
// JoinBatchNormsTwin() runs.
at::Tensor JoinBatchNorms(const at::Tensor& x_a, const ChannelNorm& norm_a, const at::Tensor& x_b,
                          const ChannelNorm& norm_b);

// Adds `residual`, if it is defined, to y, and applies `activation`. The result may overwrite y. Throws c10::Error like
// CheckNormActivation().
at::Tensor AddAndActivate(at::Tensor y, Activation activation, const at::Tensor& residual);

// Returns counters that the kernels of one norm need. The counters are zeros, and each kernel sets them back to zeros.
at::Tensor NewNormCounters(int64_t channels, at::Device device);

// Returns whether the kernels support `x` and `norm`: x is float32, float16 or bfloat16 on a GPU, [count, channels] or
// channels-last [count, channels, height, width], and not empty, the number of channels is a multiple of
// ChannelsOfPack(), and the tensors of `norm` have the types and sizes above.
bool HasBatchNormKernels(const at::Tensor& x, const ChannelNorm& norm);

// Returns the statistics of the batch: float32 [2 channels + 1], which are mean, 1 / sqrt(variance + epsilon), and the
// number of rows of the batch. HasBatchNormKernels() must be true for the arguments. Also updates the running
// statistics and num_batches_tracked.
at::Tensor BatchStatistics(const at::Tensor& x, const ChannelNorm& norm);

// Computes the same as BatchNorm() with plain ATen calls, on any device. Tests compare the kernels with this function.
// On the CPU, BatchNorm() calls this function. If ranks share the batch, this function computes in float32, whatever
// x's type is.
at::Tensor BatchNormTwin(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
                         const at::Tensor& residual = {});

// Computes the same as JoinBatchNorms() with plain ATen calls. It calls BatchNormTwin() twice, so the result of each
// norm is rounded to x_a's type.
at::Tensor JoinBatchNormsTwin(const at::Tensor& x_a, const ChannelNorm& norm_a,
                              const at::Tensor& x_b, const ChannelNorm& norm_b);

}  // namespace lockstep::ops
