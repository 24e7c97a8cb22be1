// The kernels of embedding.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/common/float_type.h"
#include "trainer/ops/common/sums_to.h"

namespace lockstep::ops {

struct EmbeddingShape {
  int64_t count;
  int64_t length;
  int64_t width;
  int64_t vocabulary;
  int64_t positions;  // rows of the position weight, at least `length`
};

// Enqueues out[c, l] = token_weight[tokens[c, l]] + position_weight[l], NaN where there is no such
// token. All pointers are the device's.
void LaunchEmbedding(const int64_t* tokens, const float* token_weight, const float* position_weight,
                     void* out, FloatType type, const EmbeddingShape& shape, cudaStream_t stream);

// Enqueues the sums over c of d_out[c, l], [positions, width] with zeros from `length` on, to position_gradient;
// and, unless token_gradient is null, token_gradient[tokens[c, l]] += d_out[c, l], in no particular order.
void LaunchEmbeddingBackward(const void* d_out, FloatType type, const int64_t* tokens,
                             float* token_gradient, const SumsTo& position_gradient,
                             const EmbeddingShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
