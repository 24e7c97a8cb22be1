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
  int64_t positions;  // the number of rows of the position weight, at least `length`
};

// Enqueues the kernel that computes out[c, l] = token_weight[tokens[c, l]] + position_weight[l] for token l of sequence
// c. The result is NaN if the token is outside the vocabulary. All pointers point to device memory.
void LaunchEmbedding(const int64_t* tokens, const float* token_weight, const float* position_weight,
                     void* out, FloatType type, const EmbeddingShape& shape, cudaStream_t stream);

// Enqueues the kernels of backward. position_gradient, [positions, width], gets the sums over the sequences c of
// d_out[c, l], and zeros in the rows from `length` on. Unless token_gradient is null, the kernels add d_out[c, l] to
// token_gradient[tokens[c, l]], in no particular order.
void LaunchEmbeddingBackward(const void* d_out, FloatType type, const int64_t* tokens,
                             float* token_gradient, const SumsTo& position_gradient,
                             const EmbeddingShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
