// Scales queries and keys to length 1, as the scaled cosine attention of Swin transformers V2 (arXiv:2111.09883) does
// before it multiplies them. The products then are cosines, times a learned number of each head.
//
// The input holds queries, keys and values side by side, as one linear layer computes them, and so does the result,
// which attentions that read them side by side take (window_attention.h). The kernels read and write each value once;
// forward keeps its input for backward. Lengths and sums are float32. The gradient of the scale is summed in a fixed
// order, so each run gives the same bits.
//
// what can fail -> what the caller sees -> the test that shows it
//   the kernels do not support the head or the type -> the result of UnitQueriesTwin()
//     -> UnitQueriesTest.TakesOtherHeads
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ops {

// Returns [query * scale[head] / |query|, key / |key|, value] for each token and head. `qkv` is [windows, tokens, 3 *
// width]: queries, keys and values, and in each of these three parts the columns of a head lie side by side. `heads`
// must divide width. `scale` is [heads] in float32. A length below `least` counts as `least`. The result has qkv's shape
// and type, is contiguous, and has gradients for qkv and scale.
//
// UnitQueriesTwin() runs if HasUnitQueriesKernels() is false.
at::Tensor UnitQueries(const at::Tensor& qkv, int64_t heads, const at::Tensor& scale, double least);

// Computes the same result as UnitQueries() with plain ATen calls, on any device and any type. 16-bit values are
// computed in float32.
at::Tensor UnitQueriesTwin(const at::Tensor& qkv, int64_t heads, const at::Tensor& scale,
                           double least);

// Returns whether the kernels support these arguments: 16-bit values on a GPU, and heads of 8, 16, 32, 64, 128 or 256
// values.
bool HasUnitQueriesKernels(const at::Tensor& qkv, int64_t heads, const at::Tensor& scale);

}  // namespace lockstep::ops
