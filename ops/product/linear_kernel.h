// Declares the functions that launch the kernels of ColumnSums() in linear.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"
#include "ops/common/rows_shape.h"
#include "ops/common/sums_to.h"

namespace lockstep::ops {

// Returns into how many slices the rows of x are divided. Each slice has one row of partial sums.
int64_t ColumnSumSlices(const void* x, FloatType type, const RowsShape& shape);

// Enqueues the kernels that write the sum over all rows r of x[r, c] to `to`, for each column c. `partials` is scratch
// memory of [slices, columns]. All pointers point to device memory. x must have at least one column.
void LaunchColumnSums(const void* x, FloatType type, float* partials, const SumsTo& to,
                      const RowsShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
