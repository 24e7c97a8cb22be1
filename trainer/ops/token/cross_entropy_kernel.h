// The kernels of cross_entropy.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/common/float_type.h"

namespace lockstep::ops {

// PyTorch's ignore_index.
inline constexpr int64_t kIgnoredTarget = -100;

struct CrossEntropyShape {
  int64_t rows;
  int64_t columns;  // of the memory, padding included; below 2^30
  int64_t classes;
  float label_smoothing;
};

// L_r of a row in two parts, because logits may be large and what they differ by small.
struct alignas(8) LogSum {
  float greatest;  // logit
  float rest;      // log of the sum of exp(logit - greatest)
};

// Enqueues losses[r] and log_sums[r] of each row. All pointers are the device's. A row whose target is
// kIgnoredTarget has a loss of 0 and a gradient of zeros.
void LaunchCrossEntropy(const void* logits, FloatType type, const int64_t* target, float* losses,
                        LogSum* log_sums, const CrossEntropyShape& shape, cudaStream_t stream);

// Enqueues logits[r, c] = *gradient (softmax(x[r])[c] - (1 - s) [c == target[r]] - s / classes).
void LaunchCrossEntropyBackward(void* logits, FloatType type, const int64_t* target,
                                const LogSum* log_sums, const float* gradient,
                                const CrossEntropyShape& shape, cudaStream_t stream);

// Both in one: losses[r] of each row, and its gradient over its logits.
void LaunchCrossEntropyAndGradient(void* logits, FloatType type, const int64_t* target,
                                   const float* gradient, float* losses,
                                   const CrossEntropyShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
