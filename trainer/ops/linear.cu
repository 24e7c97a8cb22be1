#include <algorithm>

#include "trainer/ops/linear_kernel.h"
#include "trainer/ops/pack.cuh"
#include "trainer/ops/partial_sums.cuh"

namespace lockstep::ops {
namespace {

// A block has a tile of 32 packs of columns and a slice of the rows, of which each warp reads every
// 8th.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kBlocksPerMultiprocessor = 4;

// partials[slice, c] = sum over the slice's rows of x[r, c]. kSize: values of a pack, which columns
// are a multiple of.
template <typename T, int kSize>
__global__ void __launch_bounds__(kThreads)
    SumSlice(const T* x, float* partials, int64_t rows, int64_t columns) {
  __shared__ float warps[kWarps][32 * kSize];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int64_t pack = int64_t{blockIdx.x} * 32 + lane;
  const int64_t packs = columns / kSize;
  float sums[kSize] = {};
  if (pack < packs) {
    const auto* from = reinterpret_cast<const Pack<T, kSize>*>(x) + pack;
#pragma unroll 4
    for (int64_t row = int64_t{blockIdx.y} * kWarps + warp; row < rows;
         row += int64_t{gridDim.y} * kWarps) {
      const Pack<T, kSize> values = from[row * packs];
#pragma unroll
      for (int j = 0; j < kSize; ++j) sums[j] += ToFloat(values.values[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < kSize; ++j) warps[warp][lane * kSize + j] = sums[j];
  __syncthreads();
  for (int i = threadIdx.x; i < 32 * kSize; i += kThreads) {
    const int64_t column = int64_t{blockIdx.x} * 32 * kSize + i;
    if (column >= columns) return;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += warps[w][i];
    partials[blockIdx.y * columns + column] = sum;
  }
}

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of a pack: 16 bytes, or one value where rows do not begin at multiples of 16 bytes.
int64_t PackSize(const void* x, FloatType type, const ColumnSumsShape& shape) {
  const int64_t size = type == FloatType::kFloat32 ? Pack<float>::kSize : Pack<__half>::kSize;
  return IsAligned(x) && shape.columns % size == 0 ? size : 1;
}

template <typename T>
void SumSlicesOf(const void* x, int64_t pack_size, float* partials, const ColumnSumsShape& shape,
                 int64_t slices, cudaStream_t stream) {
  const auto kernel = pack_size > 1 ? SumSlice<T, Pack<T>::kSize> : SumSlice<T, 1>;
  const dim3 grid(static_cast<unsigned>(CeilDivide(shape.columns, 32 * pack_size)),
                  static_cast<unsigned>(slices));
  kernel<<<grid, kThreads, 0, stream>>>(static_cast<const T*>(x), partials, shape.rows,
                                        shape.columns);
}

}  // namespace

int64_t ColumnSumSlices(const void* x, FloatType type, const ColumnSumsShape& shape) {
  const int64_t tiles = CeilDivide(shape.columns, 32 * PackSize(x, type, shape));
  const int64_t blocks = int64_t{shape.multiprocessors} * kBlocksPerMultiprocessor;
  return std::max(int64_t{1}, std::min(blocks / tiles, CeilDivide(shape.rows, kWarps)));
}

void LaunchColumnSums(const void* x, FloatType type, float* partials, const SumsTo& to,
                      const ColumnSumsShape& shape, cudaStream_t stream) {
  const int64_t pack_size = PackSize(x, type, shape);
  const int64_t slices = ColumnSumSlices(x, type, shape);
  WithType(type, [&](auto zero) {
    SumSlicesOf<decltype(zero)>(x, pack_size, partials, shape, slices, stream);
  });
  LaunchSumPartials(partials, {to}, slices, shape.columns, stream);
}

}  // namespace lockstep::ops
