// The kernels of ColumnSums in linear.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/float_type.h"
#include "trainer/ops/sums_to.h"

namespace lockstep::ops {

struct ColumnSumsShape {
  int64_t rows;
  int64_t columns;
  int multiprocessors;  // of the device
};

// In how many slices the rows of this matrix are added up; each has a row of partial sums.
int64_t ColumnSumSlices(const void* x, FloatType type, const ColumnSumsShape& shape);

// Enqueues, to `to`, the sums over r of x[r, c]. partials: [slices, columns] of scratch. All pointers are
// the device's. There is a column.
void LaunchColumnSums(const void* x, FloatType type, float* partials, const SumsTo& to,
                      const ColumnSumsShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
