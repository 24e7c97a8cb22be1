// The kernels of ColumnSums in linear.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/common/float_type.h"
#include "trainer/ops/common/rows_shape.h"
#include "trainer/ops/common/sums_to.h"

namespace lockstep::ops {

// In how many slices the rows of this matrix are added up; each has a row of partial sums.
int64_t ColumnSumSlices(const void* x, FloatType type, const RowsShape& shape);

// Enqueues, to `to`, the sums over r of x[r, c]. partials: [slices, columns] of scratch. All pointers are
// the device's. There is a column.
void LaunchColumnSums(const void* x, FloatType type, float* partials, const SumsTo& to,
                      const RowsShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
