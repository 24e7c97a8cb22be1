// The kernels of fused_update.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/common/float_type.h"

namespace lockstep::ops {

// A part of a parameter, no longer than kUpdateChunk, with what belongs to it. float32.
struct UpdateChunk {
  float* parameter;
  int64_t gradient;  // where it begins in its memory
  float* first;      // Adam, LAMB: mean; SGD, LARS: momentum, or null
  float* second;     // Adam, LAMB: mean square
  void* rounded;     // the parameter in 16 bits, or null
  int64_t elements;
  int32_t memory;  // of the gradient: its index in UpdateGradients
  int32_t index;   // of the parameter
};

inline constexpr int64_t kUpdateChunk = 4096;

// Where the gradients' memory lies, which may be elsewhere in each update.
inline constexpr size_t kMostGradientMemories = 64;
struct UpdateGradients {
  const float* memories[kMostGradientMemories];
};

// Chunks of several parameters, on the device as all that is pointed to is.
struct UpdateTable {
  const UpdateChunk* chunks;  // parameter by parameter
  int64_t count;
  const int64_t* ends;  // [parameters]: the number of chunks up to a parameter's last
  int64_t parameters;
  FloatType rounded;  // of the chunks' rounded parameters, where they have any
};

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

struct LambRules {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool adapts = true;  // to the parameter's norm
};

struct LarsRules {
  double momentum = 0;
  double weight_decay = 0;
  double trust = 0.001;
  bool adapts = true;
};

// A float each, on the device.
struct UpdateScalars {
  const float* lr;
  const float* updates;     // their number, with this one
  const float* skip;        // 1: nothing changes
  const float* grad_scale;  // what gradients are divided by; null for 1
};

// Enqueue the update of a table's parameters.
void LaunchAdam(const UpdateTable& table, const UpdateGradients& gradients, const AdamRules& rules,
                const UpdateScalars& scalars, cudaStream_t stream);
void LaunchSgd(const UpdateTable& table, const UpdateGradients& gradients, const SgdRules& rules,
               const UpdateScalars& scalars, cudaStream_t stream);

// The floats that norms are worked out in: `norms`, on the device, at an address for float2.
inline int64_t NormFloats(const UpdateTable& table) { return 2 * table.count + table.parameters; }

void LaunchLamb(const UpdateTable& table, const UpdateGradients& gradients, const LambRules& rules,
                const UpdateScalars& scalars, float* norms, cudaStream_t stream);
void LaunchLars(const UpdateTable& table, const UpdateGradients& gradients, const LarsRules& rules,
                const UpdateScalars& scalars, float* norms, cudaStream_t stream);

}  // namespace lockstep::ops
