// Declares the functions that launch the kernels of fused_update.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"

namespace lockstep::ops {

// A part of a parameter, with at most kUpdateChunk elements, and the same parts of the parameter's gradient and of the
// optimizer's state. All values are float32, except `rounded`.
struct UpdateChunk {
  float* parameter;
  int64_t gradient;  // index of the first element in UpdateGradients::memories[memory]
  float* first;      // mean of gradients (Adam, LAMB), or momentum (SGD, LARS) or null
  float* second;     // mean of squared gradients (Adam, LAMB)
  void* rounded;     // the copy of the parameter in 16 bits, or null
  int64_t elements;
  int32_t memory;  // the index in UpdateGradients::memories of the gradient's memory
  int32_t index;   // the index of the parameter
};

inline constexpr int64_t kUpdateChunk = 4096;

// The addresses of the gradients' memory, which can differ from update to update.
inline constexpr size_t kMostGradientMemories = 64;
struct UpdateGradients {
  const float* memories[kMostGradientMemories];
};

// The chunks of several parameters. All pointers, including those in the chunks, point to device memory.
struct UpdateTable {
  const UpdateChunk* chunks;  // [count], in the order of the parameters
  int64_t count;
  // [parameters]: for each parameter, the number of chunks of this parameter and of all parameters before it.
  const int64_t* ends;
  int64_t parameters;
  FloatType rounded;  // the type of each UpdateChunk::rounded that is not null
};

struct AdamRules {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;  // whether the weight decay is decoupled, as in AdamW
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
  bool adapts = true;  // whether the ratio |w| / |u| of fused_update.h scales the update
};

struct LarsRules {
  double momentum = 0;
  double weight_decay = 0;
  double trust = 0.001;
  bool adapts = true;
};

// The numbers that the kernels read. Each pointer points to one float on the device.
struct UpdateScalars {
  const float* lr;
  const float* updates;     // the number of updates so far, including this one
  const float* skip;        // if this number is 1, the update changes nothing
  const float* grad_scale;  // the divisor of the gradients; null counts as 1
};

// Enqueue the kernels that update the parameters of `table`.
void LaunchAdam(const UpdateTable& table, const UpdateGradients& gradients, const AdamRules& rules,
                const UpdateScalars& scalars, cudaStream_t stream);
void LaunchSgd(const UpdateTable& table, const UpdateGradients& gradients, const SgdRules& rules,
               const UpdateScalars& scalars, cudaStream_t stream);

// Returns the number of floats of scratch memory that LaunchLamb() and LaunchLars() need at `norms` if the rules'
// `adapts` is true. `norms` must be a multiple of sizeof(float2).
inline int64_t NormFloats(const UpdateTable& table) { return 2 * table.count + table.parameters; }

void LaunchLamb(const UpdateTable& table, const UpdateGradients& gradients, const LambRules& rules,
                const UpdateScalars& scalars, float* norms, cudaStream_t stream);
void LaunchLars(const UpdateTable& table, const UpdateGradients& gradients, const LarsRules& rules,
                const UpdateScalars& scalars, float* norms, cudaStream_t stream);

}  // namespace lockstep::ops
