// The kernels of ColumnSums in linear.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/float_type.h"

namespace lockstep::ops {

struct ColumnSumsShape {
  int64_t rows;
  int64_t columns;
  int multiprocessors;  // of the device
};

// In how many slices the rows of this matrix are added up; each has a row of partial sums.
int64_t ColumnSumSlices(const void* x, FloatType type, const ColumnSumsShape& shape);

// Enqueues sums[c] = sum over r of x[r, c]. partials: [slices, columns] of scratch, or nullptr for
// one slice. All pointers are the device's. rows and columns are no zeros.
void LaunchColumnSums(const void* x, FloatType type, float* partials, float* sums,
                      const ColumnSumsShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
