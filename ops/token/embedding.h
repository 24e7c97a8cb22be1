// The sum of embeddings, such as those of tokens, positions and segments, in one pass. The weights are read in float32.
//
// out[i] = weight_0[indices_0[i]] + weight_1[indices_1[i]] + ..., rounded once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace lockstep::ops {

// One addend. The indices of all addends broadcast to one shape.
struct Embedded {
  at::Tensor indices;          // int64
  at::Tensor weight;           // float32 [rows, width]
  int64_t padding_index = -1;  // the row whose gradient is dropped; -1: none
};

// The result is [..., width] in `dtype`, with float32 gradients for the weights. On the GPU the row of an index outside
// [0, rows) is NaN, and its gradient is dropped. The kernels add the gradients of rows with the same index up where
// they lie behind one another along the first dimensions, and add these sums to the weight's gradient by atomics, in
// any order, unless ATen is set to be deterministic. Throws c10::Error if the sizes do not fit.
//
// The kernels run on a GPU for up to four addends whose types are these. In all other cases EmbeddingSumTwin() runs.
at::Tensor EmbeddingSum(const std::vector<Embedded>& addends, at::ScalarType dtype);

// The same operation from plain ATen calls, for any device. Tests compare the kernels with it.
at::Tensor EmbeddingSumTwin(const std::vector<Embedded>& addends, at::ScalarType dtype);

}  // namespace lockstep::ops
