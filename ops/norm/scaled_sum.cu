#include <algorithm>

#include "base/ceil_divide.h"
#include "ops/common/block_columns.h"
#include "ops/common/floats.cuh"
#include "ops/common/lane_sums.cuh"
#include "ops/common/pack.cuh"
#include "ops/common/partial_sums.cuh"
#include "ops/norm/scaled_sum_kernel.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 8;        // the number of columns of a thread, which are 16 bytes of `branch`
constexpr int kMostPacks = 32;  // the maximum number of packs of a block
constexpr int kBlocksPerMultiprocessor = 4;

using Columns = Floats<kPack>;

// The distribution of blocks over a matrix. If the matrix is narrow, a warp processes several rows at once.
struct Tiles {
  int columns;  // the number of blocks that share a row
  int packs;    // the number of packs of a block; the last block may have fewer
  int lanes;    // the number of rows that a block processes at a time
  int slices;   // the number of blocks that share the rows

  static Tiles Of(const RowsShape& shape) {
    const auto [columns, packs] = BlockColumns::Of(shape.width / kPack, kMostPacks);
    const int lanes = kThreads / packs;
    const int64_t resident = int64_t{shape.multiprocessors} * kBlocksPerMultiprocessor / columns;
    return {columns, packs, lanes,
            static_cast<int>(std::clamp<int64_t>(CeilDivide(shape.rows, lanes), 1,
                                                 std::max<int64_t>(resident, 1)))};
  }
  dim3 Grid() const { return dim3(columns, slices); }
  dim3 Block() const { return dim3(packs, lanes); }
};

__device__ Columns LoadFloatPack(const float* matrix, int64_t pack) {
  return LoadFloats<kPack>(matrix, pack);
}

__device__ void StoreFloatPack(float* matrix, int64_t pack, const Columns& values) {
#pragma unroll
  for (int i = 0; i < kPack; i += 4) {
    const Pack<float> four = {values.values[i], values.values[i + 1], values.values[i + 2],
                              values.values[i + 3]};
    Store(matrix, (pack * kPack + i) / 4, four);
  }
}

template <typename T>
__device__ Columns LoadPack(const void* matrix, int64_t pack) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return LoadFloatPack(static_cast<const float*>(matrix), pack);
  } else {
    return ToFloats<T>(Load(matrix, pack));
  }
}

template <typename T>
__device__ void StorePack(void* matrix, int64_t pack, const Columns& values) {
  if constexpr (sizeof(T) == sizeof(float)) {
    StoreFloatPack(static_cast<float*>(matrix), pack, values);
  } else {
    Store(matrix, pack, FromFloats<T>(values));
  }
}

// Computes sum and rounded. X is the type of x, and T is the type of branch.
template <typename X, typename T>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    Forward(ScaledSumForward t, RowsShape shape) {
  const int64_t packs = shape.width / kPack;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const Columns scale = LoadFloatPack(t.scale, pack);
  for (int64_t row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < shape.rows;
       row += int64_t{gridDim.y} * blockDim.y) {
    const int64_t place = row * packs + pack;
    Columns sum = LoadPack<X>(t.x, place);
    const Columns branch = LoadPack<T>(t.branch, place);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      sum.values[j] = fmaf(scale.values[j], branch.values[j], sum.values[j]);
    }
    StoreFloatPack(t.sum, place, sum);
    if (t.rounded != nullptr) StorePack<T>(t.rounded, place, sum);
  }
}

template <typename X, typename T>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    Backward(ScaledSumBackward t, RowsShape shape) {
  const int64_t packs = shape.width / kPack;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  Columns d_scale = {};
  if (pack < packs) {
    const Columns scale = LoadFloatPack(t.scale, pack);
    for (int64_t row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < shape.rows;
         row += int64_t{gridDim.y} * blockDim.y) {
      const int64_t place = row * packs + pack;
      Columns d = {};
      if (t.d_sum != nullptr) d = LoadFloatPack(t.d_sum, place);
      if (t.d_rounded != nullptr) {
        const Columns more = LoadPack<T>(t.d_rounded, place);
#pragma unroll
        for (int j = 0; j < kPack; ++j) d.values[j] += more.values[j];
      }
      if (t.dx != nullptr) StorePack<X>(t.dx, place, d);
      const Columns branch = LoadPack<T>(t.branch, place);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        d_scale.values[j] = fmaf(d.values[j], branch.values[j], d_scale.values[j]);
        d.values[j] *= scale.values[j];
      }
      StorePack<T>(t.d_branch, place, d);
    }
  }
  if (t.partials == nullptr) return;
  SumLanes<kThreads>(d_scale.values, blockIdx.x, shape.width, [&](int64_t column, float sum) {
    t.partials[blockIdx.y * shape.width + column] = sum;
  });
}

// Calls launch() with values of the C++ types of x and of branch.
template <typename Launch>
void WithTypes(const ScaledSumTypes& types, const Launch& launch) {
  const auto with_x = [&](auto branch) {
    return types.x == FloatType::kFloat32 ? launch(float(), branch) : launch(branch, branch);
  };
  return With16Bits(types.branch, with_x);
}

}  // namespace

int64_t ScaledSumSlices(const RowsShape& shape) { return Tiles::Of(shape).slices; }

void LaunchScaledSum(const ScaledSumForward& tensors, const ScaledSumTypes& types,
                     const RowsShape& shape, cudaStream_t stream) {
  const Tiles tiles = Tiles::Of(shape);
  WithTypes(types, [&](auto x, auto branch) {
    Forward<decltype(x), decltype(branch)>
        <<<tiles.Grid(), tiles.Block(), 0, stream>>>(tensors, shape);
  });
}

void LaunchScaledSumBackward(const ScaledSumBackward& tensors, const ScaledSumTypes& types,
                             const RowsShape& shape, cudaStream_t stream) {
  const Tiles tiles = Tiles::Of(shape);
  WithTypes(types, [&](auto x, auto branch) {
    Backward<decltype(x), decltype(branch)>
        <<<tiles.Grid(), tiles.Block(), 0, stream>>>(tensors, shape);
  });
  LaunchSumPartials(tensors.partials, {tensors.d_scale}, tiles.slices, shape.width, stream);
}

}  // namespace lockstep::ops
