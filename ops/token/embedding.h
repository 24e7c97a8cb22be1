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

// One addend of the sum. The indices of all addends broadcast to one shape.
struct Embedded {
  at::Tensor indices;          // int64
  at::Tensor weight;           // float32 [rows, width]
  int64_t padding_index = -1;  // the row that gets no gradient; -1 if there is none
};

// Returns out, [..., width] in `dtype`, with float32 gradients for the weights. Throws c10::Error if the sizes do not
// fit. On the GPU, an index outside [0, rows) gives an output row of NaN, and no gradient is added for this index. The
// kernel of backward first adds up the gradients of output rows that have the same index and that one warp processes
// one after the other. The kernel then adds these sums to the weight's gradient with atomics, in no fixed order. If
// at::globalContext() asks for deterministic algorithms, at::index_add_() computes the gradients instead, with the same
// bits in each run.
//
// The kernels run on a GPU for up to four addends whose indices are int64 and whose weights are float32. In all other
// cases EmbeddingSumTwin() runs.
at::Tensor EmbeddingSum(const std::vector<Embedded>& addends, at::ScalarType dtype);

// Computes the same result as EmbeddingSum() with plain ATen calls, on any device. Tests compare the kernels with this
// function.
at::Tensor EmbeddingSumTwin(const std::vector<Embedded>& addends, at::ScalarType dtype);

}  // namespace lockstep::ops
