// The kernels of fused_update.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/float_type.h"

namespace lockstep::ops {

// A part of a parameter, no longer than kUpdateChunk, with what belongs to it. float32.
struct UpdateChunk {
  float* parameter;
  const float* gradient;
  float* first;   // Adam: mean; SGD: momentum, or null
  float* second;  // Adam: mean square
  void* rounded;  // the parameter in 16 bits, or null
  int64_t elements;
};

inline constexpr int64_t kUpdateChunk = 4096;

struct AdamRules {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;  // AdamW
};

struct SgdRules {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

// A float each, on the device.
struct UpdateScalars {
  const float* lr;
  const float* updates;     // their number, with this one
  const float* skip;        // 1: nothing changes
  const float* grad_scale;  // what gradients are divided by; null for 1
};

// Enqueue the update of `count` chunks, which lie on the device as all that is pointed to does. rounded: the
// type of the chunks' rounded parameters, where they have any.
void LaunchAdam(const UpdateChunk* chunks, int64_t count, const AdamRules& rules,
                const UpdateScalars& scalars, FloatType rounded, cudaStream_t stream);
void LaunchSgd(const UpdateChunk* chunks, int64_t count, const SgdRules& rules,
               const UpdateScalars& scalars, FloatType rounded, cudaStream_t stream);

}  // namespace lockstep::ops
