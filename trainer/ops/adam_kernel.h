// The kernel of adam.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace lockstep::ops {

// A part of a parameter, no longer than kAdamChunk, with what belongs to it. float32.
struct AdamChunk {
  float* parameter;
  float* gradient;
  float* mean;
  float* mean_square;
  int64_t elements;
};

inline constexpr int64_t kAdamChunk = 4096;

struct AdamRules {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;  // AdamW
};

// Enqueues the update of `count` chunks, which lie on the device as all that is pointed to does. lr,
// updates (their number, with this one), skip: one float each; grad_scale: likewise, or null for 1.
void LaunchAdam(const AdamChunk* chunks, int64_t count, const AdamRules& rules, const float* lr,
                const float* updates, const float* skip, const float* grad_scale,
                cudaStream_t stream);

}  // namespace lockstep::ops
