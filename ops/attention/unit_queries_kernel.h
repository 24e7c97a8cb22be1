// Declares the functions that launch the kernels of unit_queries.h. All pointers point to device memory, and those to
// 16-bit values are aligned to 16 bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"

namespace lockstep::ops {

// The number of 16-bit values that a thread loads at once. A head has 1, 2, 4, ... or kMostUnitPacks such packs.
constexpr int64_t kUnitPackValues = 8;
constexpr int64_t kMostUnitPacks = 32;

// The largest number of packs in queries, keys and values. The limit exists because the kernels count packs in 32 bits.
constexpr int64_t kMostUnitQueriesPacks = INT32_MAX;

struct UnitQueriesShape {
  int64_t tokens;  // of all windows
  unsigned heads;
  unsigned packs;  // of a head
  float least;     // a length below it counts as `least`
};

struct UnitQueriesForward {
  const void* qkv;     // [tokens, 3, heads, packs] packs
  const float* scale;  // [heads]
  void* out;           // like qkv
};

struct UnitQueriesBackward {
  const void* qkv;
  const float* scale;
  const void* d_out;  // like qkv
  void* d_qkv;        // like qkv
  float*
      d_scales;  // [tokens, heads]: each token's part of the gradient of `scale`; null if it is not wanted
};

void LaunchUnitQueries(const UnitQueriesForward& tensors, FloatType type,
                       const UnitQueriesShape& shape, cudaStream_t stream);
void LaunchUnitQueriesBackward(const UnitQueriesBackward& tensors, FloatType type,
                               const UnitQueriesShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
