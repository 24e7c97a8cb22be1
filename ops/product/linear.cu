#include "ops/common/pack.cuh"
#include "ops/common/partial_sums.cuh"
#include "ops/common/row_slices.cuh"
#include "ops/product/linear_kernel.h"

namespace lockstep::ops {
namespace {

constexpr int kBlocksPerMultiprocessor = 4;

// Computes partials[slice, c] = the sum over the slice's rows of x[r, c]. kSize is the number of values of a pack, and
// `columns` is a multiple of kSize.
template <typename T, int kSize>
__global__ void __launch_bounds__(kSliceThreads)
    SumSlice(const T* x, float* partials, int64_t rows, int64_t columns) {
  const int64_t pack = int64_t{blockIdx.x} * 32 + threadIdx.x % 32;
  const int64_t packs = columns / kSize;
  float sums[kSize] = {};
  if (pack < packs) {
    const auto* from = reinterpret_cast<const Pack<T, kSize>*>(x) + pack;
#pragma unroll 4
    for (int64_t row = int64_t{blockIdx.y} * kSliceWarps + threadIdx.x / 32; row < rows;
         row += int64_t{gridDim.y} * kSliceWarps) {
      const Pack<T, kSize> values = from[row * packs];
#pragma unroll
      for (int j = 0; j < kSize; ++j) sums[j] += ToFloat(values.values[j]);
    }
  }
  SumWarps(sums, partials, columns);
}

// Returns the number of values in a pack. A pack has 16 bytes, or one value if not all rows begin at multiples of 16
// bytes.
int64_t PackSize(const void* x, FloatType type, const RowsShape& shape) {
  return WithType(type, [&](auto zero) -> int64_t {
    using T = decltype(zero);
    return IsPacked<T>(shape, x) ? Pack<T>::kSize : 1;
  });
}

}  // namespace

int64_t ColumnSumSlices(const void* x, FloatType type, const RowsShape& shape) {
  return SliceCount(shape, PackSize(x, type, shape), kBlocksPerMultiprocessor);
}

void LaunchColumnSums(const void* x, FloatType type, float* partials, const SumsTo& to,
                      const RowsShape& shape, cudaStream_t stream) {
  const int64_t pack_size = PackSize(x, type, shape);
  const int64_t slices = ColumnSumSlices(x, type, shape);
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel = pack_size > 1 ? SumSlice<T, Pack<T>::kSize> : SumSlice<T, 1>;
    kernel<<<SlicesGrid(shape, pack_size, slices), kSliceThreads, 0, stream>>>(
        static_cast<const T*>(x), partials, shape.rows, shape.width);
  });
  LaunchSumPartials(partials, {to}, slices, shape.width, stream);
}

}  // namespace lockstep::ops
