// Declares the functions that launch the kernels of batch_norm.h. All pointers point to device memory. [rows, channels]
// means that the channels of a row lie side by side: a tensor [N, C], or [N, C, H, W] with the channels last.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"
#include "ops/common/sums_to.h"

namespace lockstep::ops {

struct BatchNormShape {
  int64_t rows;
  int64_t channels;     // a multiple of ChannelsOfPack(type)
  int multiprocessors;  // the number of multiprocessors of the device
};

// The formula by which y is computed.
enum class BatchNormForm {
  kNorm,       // norm(x)
  kRelu,       // relu(norm(x))
  kSilu,       // silu(norm(x))
  kHardswish,  // hardswish(norm(x))
  kAddRelu,    // relu(norm(x) + residual)
  kJoinRelu,   // relu(norm_0(x_0) + norm_1(x_1)): two inputs, each with its own norm
};

constexpr int InputsOf(BatchNormForm form) { return form == BatchNormForm::kJoinRelu ? 2 : 1; }

// Returns whether ReLU follows an addition. If so, forward keeps a mask that says which values ReLU let pass.
constexpr bool HasMask(BatchNormForm form) {
  return form == BatchNormForm::kAddRelu || form == BatchNormForm::kJoinRelu;
}

// Returns how many float32 values of scratch memory the kernels need. `sums` is the number of sums over rows of each
// channel: 2 for the statistics, and 1 + InputsOf(form) for backward.
int64_t BatchNormPartials(FloatType type, const BatchNormShape& shape, int sums);

// Returns how many counters the sums over rows need, for any float type. The thread blocks use the counters to find out
// which block is the last to finish. The counters are 0 before and after a launch. Launches that use the same counters
// must not overlap.
int64_t BatchNormCounters(int64_t channels);

// The outputs that a kernel computes from a batch's mean and variance, and two parameters of the computation, epsilon
// and momentum.
struct BatchNormResults {
  float epsilon;
  float momentum;
  float* statistics;    // [2 channels + 1]: mean, 1 / sqrt(variance + epsilon), the number of rows
  float* running_mean;  // [channels], or nullptr
  float* running_var;   // [channels], or nullptr
  int64_t* num_batches_tracked;  // a number to which the kernel adds 1; or nullptr
};

struct BatchNormStatistics {
  const void* x;
  float* partials;  // scratch memory of BatchNormPartials(..., 2) floats
  int* counters;
  BatchNormResults results;
};

// The input and the output of the kernel that computes the moments of one rank's part of a batch.
struct BatchNormMoments {
  const void* x;
  float* partials;
  int* counters;
  // [2 channels + 1]: mean, the sum of squared differences from the mean, the number of rows
  float* moments;
};

struct BatchNormRanks {
  const float* moments;  // [ranks, 2 channels + 1]
  int64_t ranks;
  BatchNormResults results;
};

struct BatchNormInput {
  const void* x;
  const float* weight;      // [channels]
  const float* bias;        // [channels]
  const float* statistics;  // BatchNormResults::statistics
};

struct BatchNormForward {
  BatchNormForm form;
  BatchNormInput inputs[2];  // the first InputsOf(form) are used
  const void* residual;      // only for kAddRelu
  void* y;
  // The mask, [rows, channels / ChannelsOfPack], which is written if HasMask(form) is true. Bit i says whether ReLU let
  // the value of channel i of the pack pass.
  uint8_t* mask;
};

struct BatchNormBackward {
  BatchNormForm form;
  BatchNormInput inputs[2];
  const void* dy;
  const uint8_t* mask;
  float* partials;  // scratch memory of BatchNormPartials(..., 1 + inputs) floats
  int* counters;
  float* d_weights;  // [inputs, 2, channels]: the sums over rows of dz x^ and of dz
  // The gradients of each input's weight and bias. If these gradients are wanted, the kernel also writes the sums of
  // d_weights to d_weight and d_bias.
  SumsTo d_weight[2];
  SumsTo d_bias[2];
  // At most one of the outputs dx[0], dx[1] and d_residual may have the same memory as dy.
  void* dx[2];       // the gradients of the inputs
  void* d_residual;  // only for kAddRelu; or nullptr
};

// Enqueues the kernel that computes `statistics` with the biased variance, updates the running statistics with the
// unbiased variance, and adds 1 to num_batches_tracked.
void LaunchBatchNormStatistics(const BatchNormStatistics& tensors, FloatType type,
                               const BatchNormShape& shape, cudaStream_t stream);

// Enqueues the kernel that computes the moments of this rank's part of a batch that ranks share. For such a batch,
// LaunchBatchNormMoments() and LaunchBatchNormRanks() are called instead of LaunchBatchNormStatistics().
void LaunchBatchNormMoments(const BatchNormMoments& tensors, FloatType type,
                            const BatchNormShape& shape, cudaStream_t stream);
// Enqueues the kernel that computes BatchNormResults from the moments of all ranks. A batch of one row does not change
// the running statistics.
void LaunchBatchNormRanks(const BatchNormRanks& tensors, int64_t channels, cudaStream_t stream);

// Enqueues the kernel that computes y and, if HasMask(form) is true, mask.
void LaunchBatchNorm(const BatchNormForward& tensors, FloatType type, const BatchNormShape& shape,
                     cudaStream_t stream);

// Enqueues, for each input, the kernel that computes d_weights = the sums over rows of dz x^ and of dz. x^ is (x -
// mean) rstd, where rstd is 1 / sqrt(variance + epsilon). dz is dy times the slope of the activation; with ReLU, dz is
// dy where ReLU let the value pass, and 0 elsewhere.
void LaunchBatchNormSums(const BatchNormBackward& tensors, FloatType type,
                         const BatchNormShape& shape, cudaStream_t stream);

// Enqueues the kernel that computes
//   dx = weight rstd (dz - mean of dz - x^ mean of dz x^), where the means are those of a channel,
// and d_residual = dz. d_weights must hold the sums over all rows of the batch.
void LaunchBatchNormBackward(const BatchNormBackward& tensors, FloatType type,
                             const BatchNormShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
