// The kernels of batch_norm.h. All pointers point to device memory. [rows, channels] means that the channels of a row
// lie side by side: a tensor [N, C], or [N, C, H, W] with the channels last.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/common/float_type.h"
#include "trainer/ops/common/sums_to.h"

namespace lockstep::ops {

struct BatchNormShape {
  int64_t rows;
  int64_t channels;     // a multiple of ChannelsOfPack
  int multiprocessors;  // of the device
};

// What y is.
enum class BatchNormForm {
  kNorm,      // norm(x)
  kRelu,      // relu(norm(x))
  kAddRelu,   // relu(norm(x) + residual)
  kJoinRelu,  // relu(norm(x) + norm'(x')): two inputs, each with a norm of its own
};

constexpr int InputsOf(BatchNormForm form) { return form == BatchNormForm::kJoinRelu ? 2 : 1; }

// Whether ReLU follows an addition: forward then keeps what it let pass.
constexpr bool HasMask(BatchNormForm form) {
  return form == BatchNormForm::kAddRelu || form == BatchNormForm::kJoinRelu;
}

// Float32 values of the scratch for so many sums over rows: 2 for the statistics, 1 + inputs for
// backward.
int64_t BatchNormPartials(FloatType type, const BatchNormShape& shape, int sums);

// How many counters sums over rows need, in any float type: by them blocks know which of them is the
// last. They are 0 before a launch and after it; launches with the same ones must not overlap.
int64_t BatchNormCounters(int64_t channels);

// What comes of a batch's mean and variance.
struct BatchNormResults {
  float epsilon;
  float momentum;
  float* statistics;    // [2 channels + 1]: mean, 1 / sqrt(variance + epsilon), the number of rows
  float* running_mean;  // [channels], or nullptr
  float* running_var;   // as running_mean
  int64_t* num_batches_tracked;  // to which 1 is added; or nullptr
};

struct BatchNormStatistics {
  const void* x;
  float* partials;  // scratch of 2 sums
  int* counters;
  BatchNormResults results;
};

// Of one rank's part of a batch.
struct BatchNormMoments {
  const void* x;
  float* partials;
  int* counters;
  // [2 channels + 1]: mean, the sum of squared differences from it, the number of rows
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
  const float* statistics;  // of BatchNormResults
};

struct BatchNormForward {
  BatchNormForm form;
  BatchNormInput inputs[2];  // as many as InputsOf(form)
  const void* residual;      // of kAddRelu
  void* y;
  // Where HasMask(form): [rows, channels / ChannelsOfPack]; bit i says whether ReLU let channel i
  // pass.
  uint8_t* mask;
};

struct BatchNormBackward {
  BatchNormForm form;
  BatchNormInput inputs[2];
  const void* dy;
  const uint8_t* mask;
  float* partials;  // scratch of 1 + inputs sums
  int* counters;
  float* d_weights;  // [inputs, 2, channels]: sums of dz x^, of dz
  // Where these are wanted besides, of each input.
  SumsTo d_weight[2];
  SumsTo d_bias[2];
  // One of these may be dy.
  void* dx[2];       // of inputs
  void* d_residual;  // of kAddRelu, or nullptr
};

// Enqueues statistics, of the biased variance, and what follows them: the running ones, of the unbiased
// variance, and num_batches_tracked.
void LaunchBatchNormStatistics(const BatchNormStatistics& tensors, FloatType type,
                               const BatchNormShape& shape, cudaStream_t stream);

// Enqueues what takes its place where ranks share a batch. Each sums up its own part:
void LaunchBatchNormMoments(const BatchNormMoments& tensors, FloatType type,
                            const BatchNormShape& shape, cudaStream_t stream);
// and combines those of all. The running statistics do not follow a batch of one row.
void LaunchBatchNormRanks(const BatchNormRanks& tensors, int64_t channels, cudaStream_t stream);

// Enqueues y and mask.
void LaunchBatchNorm(const BatchNormForward& tensors, FloatType type, const BatchNormShape& shape,
                     cudaStream_t stream);

// With x^ = (x - mean) rstd, and dz = dy where ReLU let it pass, else 0, enqueues for each input
//   d_weights = sums over rows of dz x^ and of dz.
void LaunchBatchNormSums(const BatchNormBackward& tensors, FloatType type,
                         const BatchNormShape& shape, cudaStream_t stream);

// Enqueues, d_weights being the sums over all rows of the batch,
//   dx = weight rstd (dz - mean of dz - x^ mean of dz x^), the means being a channel's;
// and d_residual = dz.
void LaunchBatchNormBackward(const BatchNormBackward& tensors, FloatType type,
                             const BatchNormShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
