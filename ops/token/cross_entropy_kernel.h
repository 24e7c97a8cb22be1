// Declares the functions that launch the kernels of cross_entropy.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"

namespace lockstep::ops {

// The target of rows that are left out. It is the default ignore_index of PyTorch.
inline constexpr int64_t kIgnoredTarget = -100;

struct CrossEntropyShape {
  int64_t rows;
  int64_t columns;  // the number of columns in memory, with padding; below 2^30
  int64_t classes;
  float label_smoothing;
};

// L_r (cross_entropy.h) of a row is the sum of these two parts. The parts are kept separate, because a float32 sum of a
// large and a small part would lose digits of the small part.
struct alignas(8) LogSum {
  float greatest;  // the greatest logit
  float rest;      // log of the sum of exp(logit - greatest)
};

// Enqueues the kernel that computes losses[r] and log_sums[r] for each row. All pointers point to device memory. A row
// whose target is kIgnoredTarget has a loss of 0 and a gradient of zeros.
void LaunchCrossEntropy(const void* logits, FloatType type, const int64_t* target, float* losses,
                        LogSum* log_sums, const CrossEntropyShape& shape, cudaStream_t stream);

// Enqueues the kernel that overwrites the logits x with their gradient, where s is the label smoothing:
//   logits[r, c] = *gradient (softmax(x[r])[c] - (1 - s) [c == target[r]] - s / classes)
void LaunchCrossEntropyBackward(void* logits, FloatType type, const int64_t* target,
                                const LogSum* log_sums, const float* gradient,
                                const CrossEntropyShape& shape, cudaStream_t stream);

// Enqueues one kernel that computes losses[r] for each row, and overwrites the row's logits with their gradient.
void LaunchCrossEntropyAndGradient(void* logits, FloatType type, const int64_t* target,
                                   const float* gradient, float* losses,
                                   const CrossEntropyShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
