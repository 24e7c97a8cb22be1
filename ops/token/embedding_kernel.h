// Declares the functions that launch the kernels of embedding.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"

namespace lockstep::ops {

// An addend of the sum. Output row (c, l) reads the weight's row indices[c * count_stride + l * length_stride]. All
// pointers point to device memory.
struct EmbeddedRows {
  const int64_t* indices;
  int64_t count_stride;
  int64_t length_stride;
  const float* weight;  // [rows, width]; only forward reads it
  float* gradient;      // [rows, width]; only backward writes it; null if it is not wanted
  int64_t rows;
  int64_t padding_index;  // the row that gets no gradient; -1 if there is none
};

constexpr int kMostEmbedded = 4;

struct EmbeddedSum {
  EmbeddedRows addends[kMostEmbedded];
  int addend_count;
  int64_t count;
  int64_t length;
  int64_t width;
};

// Enqueues the kernel that computes out, [count, length, width]. A row of `out` is NaN if one of its indices is outside
// [0, rows).
void LaunchEmbeddingSum(const EmbeddedSum& sum, void* out, FloatType type, cudaStream_t stream);

// Enqueues the kernel that adds the rows of d_out, which has the shape and type of `out`, to the gradients, in no fixed
// order.
void LaunchEmbeddingSumBackward(const EmbeddedSum& sum, const void* d_out, FloatType type,
                                cudaStream_t stream);

}  // namespace lockstep::ops
