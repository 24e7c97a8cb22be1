// EmbeddingSum(): computes a sum of embeddings, such as those of tokens, positions and segments, in one pass. The
// weights are read in float32.
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

// The result is [..., width] in `dtype`, with float32 gradients for the weights. Throws c10::Error if the sizes do not
// fit. On the GPU, an index outside [0, rows) gives a row of NaN, and its gradient is dropped. The backward kernel
// first adds up gradients that have the same index and follow each other along the first dimensions. It adds these sums
// to the weight's gradient with atomics, in no fixed order. If at::globalContext() asks for deterministic algorithms,
// at::index_add_() computes the gradients instead, with the same bits each time.
//
// The kernels run on a GPU for up to four addends whose indices are int64 and whose weights are float32. In all other
// cases EmbeddingSumTwin() runs.
at::Tensor EmbeddingSum(const std::vector<Embedded>& addends, at::ScalarType dtype);

// Computes the same with plain ATen calls, on any device. Tests compare the kernels with it.
at::Tensor EmbeddingSumTwin(const std::vector<Embedded>& addends, at::ScalarType dtype);

}  // namespace lockstep::ops
