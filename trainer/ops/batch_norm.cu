#include <algorithm>

#include "trainer/ops/batch_norm_kernel.h"
#include "trainer/ops/pack.cuh"
#include "trainer/ops/partial_sums.cuh"

namespace lockstep::ops {
namespace {

// A thread has one pack of channels, and each row of a stride: what belongs to the channels stays in its
// registers. A block is as many packs wide as a row has, or kThreads, and as many rows high as
// kThreads allow; blocks walk the rows with a stride. The sums over rows come from one pass, forwards;
// what uses them goes backwards, so that it begins with what is still in the L2 cache.
constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 4;  // that share the sums over rows
constexpr int kUnroll = 4;                   // rows whose loads a thread has under way

// How blocks lie on [rows, channels].
struct Tiling {
  dim3 threads;      // packs, rows
  unsigned columns;  // blocks side by side
  int64_t most;      // blocks one above the other that find rows for all loads of their threads

  // The grid of so many blocks on each multiprocessor.
  dim3 Grid(int multiprocessors, int per_multiprocessor) const {
    const int64_t resident = int64_t{multiprocessors} * std::max(per_multiprocessor, 1) / columns;
    return {columns, static_cast<unsigned>(std::clamp<int64_t>(resident, 1, most))};
  }
};

Tiling TilingOf(const BatchNormShape& shape, int pack) {
  const int64_t packs = shape.channels / pack;
  const auto wide = static_cast<unsigned>(std::min<int64_t>(packs, kThreads));
  const unsigned high = kThreads / wide;
  const int64_t rows = int64_t{high} * kUnroll;
  return {.threads = dim3(wide, high),
          .columns = static_cast<unsigned>((packs + wide - 1) / wide),
          .most = (shape.rows + rows - 1) / rows};
}

template <int kSize>
struct Floats {
  float values[kSize];
};

template <int kSize>
__device__ Floats<kSize> LoadFloats(const float* values, int64_t pack) {
  Floats<kSize> result;
  LoadWeights(values, pack, result.values);
  return result;
}

template <typename T>
__device__ Floats<Pack<T>::kSize> ToFloats(const uint4& words) {
  const Pack<T> pack = Unpack<T>(words);
  Floats<Pack<T>::kSize> result;
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) result.values[i] = ToFloat(pack.values[i]);
  return result;
}

template <typename T>
__device__ Pack<T> FromFloats(const Floats<Pack<T>::kSize>& values) {
  Pack<T> result;
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) result.values[i] = FromFloat<T>(values.values[i]);
  return result;
}

// norm(x) = x scale + shift. Forward and backward must round it alike, as the one says what ReLU let
// pass and the other asks again.
template <int kSize>
struct Affine {
  Floats<kSize> scale;
  Floats<kSize> shift;

  __device__ float operator()(float x, int i) const {
    return fmaf(x, scale.values[i], shift.values[i]);
  }
};

template <int kSize>
__device__ Affine<kSize> AffineOf(const float* weight, const float* bias, const float* statistics,
                                  int64_t channels, int64_t pack) {
  const Floats<kSize> mean = LoadFloats<kSize>(statistics, pack);
  const Floats<kSize> rstd = LoadFloats<kSize>(statistics + channels, pack);
  Affine<kSize> affine{LoadFloats<kSize>(weight, pack), LoadFloats<kSize>(bias, pack)};
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    affine.scale.values[i] *= rstd.values[i];
    affine.shift.values[i] = fmaf(-mean.values[i], affine.scale.values[i], affine.shift.values[i]);
  }
  return affine;
}

// Calls visit(row) for each of a thread's rows, kUnroll at a time: load(row, u) of all of them first.
template <typename LoadRow, typename Visit>
__device__ void ForEachRow(int64_t rows, const LoadRow& load, const Visit& visit) {
  const int64_t stride = int64_t{gridDim.y} * blockDim.y;
  for (int64_t first = int64_t{blockIdx.y} * blockDim.y + threadIdx.y; first < rows;
       first += kUnroll * stride) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * stride < rows) load(first + u * stride, u);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * stride < rows) visit(first + u * stride, u);
    }
  }
}

// Adds up what the block's rows of threads have, in an order that is the same each time, and writes it
// to partials[block, 2, channels].
template <int kSize>
__device__ void WritePartials(const Floats<kSize> (&sums)[2], float* partials, int64_t channels) {
  __shared__ float shared[2][kSize][kThreads];
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    shared[0][i][thread] = sums[0].values[i];
    shared[1][i][thread] = sums[1].values[i];
  }
  for (unsigned high = blockDim.y; high > 1;) {
    const unsigned half = (high + 1) / 2;
    __syncthreads();
    if (threadIdx.y + half < high) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        shared[0][i][thread] += shared[0][i][thread + half * blockDim.x];
        shared[1][i][thread] += shared[1][i][thread + half * blockDim.x];
      }
    }
    high = half;
  }
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (threadIdx.y != 0 || pack * kSize >= channels) return;
  float* own = partials + int64_t{blockIdx.y} * 2 * channels + pack * kSize;
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    own[i] = shared[0][i][thread];
    own[channels + i] = shared[1][i][thread];
  }
}

// Sums of x - pivot and of its square. The pivot is a channel's first value: where the values are far
// from 0 and close together, squares of x itself would leave no digits of the variance.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    Statistics(BatchNormStatistics t, BatchNormShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t packs = shape.channels / kSize;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  Floats<kSize> sums[2] = {};
  if (pack < packs) {
    const Floats<kSize> pivot = ToFloats<T>(Load(t.x, pack));
    uint4 loaded[kUnroll];
    ForEachRow(
        shape.rows, [&](int64_t row, int u) { loaded[u] = Load(t.x, row * packs + pack); },
        [&](int64_t, int u) {
          const Floats<kSize> values = ToFloats<T>(loaded[u]);
#pragma unroll
          for (int i = 0; i < kSize; ++i) {
            const float deviation = values.values[i] - pivot.values[i];
            sums[0].values[i] += deviation;
            sums[1].values[i] = fmaf(deviation, deviation, sums[1].values[i]);
          }
        });
  }
  WritePartials(sums, t.partials, shape.channels);
}

// Calls use(channel, sums) with the channel's two sums over partials[rows, 2, channels].
template <typename Use>
__device__ void WithSums(const float* partials, int64_t rows, int64_t channels, const Use& use) {
  __shared__ float slices[2][kPartialSlices][kPartialColumns];
  const int64_t channel = int64_t{blockIdx.x} * kPartialColumns + threadIdx.x;
  float sums[2] = {};
  if (channel < channels) {
#pragma unroll 4
    for (int64_t row = threadIdx.y; row < rows; row += kPartialSlices) {
      sums[0] += partials[row * 2 * channels + channel];
      sums[1] += partials[(row * 2 + 1) * channels + channel];
    }
  }
  slices[0][threadIdx.y][threadIdx.x] = sums[0];
  slices[1][threadIdx.y][threadIdx.x] = sums[1];
  __syncthreads();
  if (threadIdx.y != 0 || channel >= channels) return;
  for (int slice = 1; slice < kPartialSlices; ++slice) {
    sums[0] += slices[0][slice][threadIdx.x];
    sums[1] += slices[1][slice][threadIdx.x];
  }
  use(channel, sums);
}

template <typename T>
__global__ void __launch_bounds__(kPartialSlices* kPartialColumns)
    FinishStatistics(BatchNormStatistics t, BatchNormShape shape, int64_t partial_rows) {
  WithSums(t.partials, partial_rows, shape.channels, [&](int64_t channel, const float(&sums)[2]) {
    const auto rows = static_cast<float>(shape.rows);
    const float offset = sums[0] / rows;
    const float mean = ToFloat(static_cast<const T*>(t.x)[channel]) + offset;
    // A comparison would make 0 of NaN.
    const float difference = sums[1] / rows - offset * offset;
    const float variance = difference < 0 ? 0 : difference;
    t.statistics[channel] = mean;
    t.statistics[shape.channels + channel] = rsqrtf(variance + t.epsilon);
    if (t.running_mean == nullptr) return;
    const auto follow = [&](float& running, float value) {
      running = fmaf(t.momentum, value - running, running);
    };
    follow(t.running_mean[channel], mean);
    follow(t.running_var[channel], variance * (rows / (rows - 1)));
  });
}

template <typename T, bool kRelu, bool kResidual>
__global__ void __launch_bounds__(kThreads) Forward(BatchNormForward t, BatchNormShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t packs = shape.channels / kSize;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const Affine<kSize> norm = AffineOf<kSize>(t.weight, t.bias, t.statistics, shape.channels, pack);
  const auto index = [&](int64_t row) { return (shape.rows - 1 - row) * packs + pack; };
  uint4 loaded[kUnroll];
  uint4 residuals[kUnroll];
  ForEachRow(
      shape.rows,
      [&](int64_t row, int u) {
        loaded[u] = Load(t.x, index(row));
        if constexpr (kResidual) residuals[u] = Load(t.residual, index(row));
      },
      [&](int64_t row, int u) {
        Floats<kSize> values = ToFloats<T>(loaded[u]);
        Floats<kSize> residual;
        if constexpr (kResidual) residual = ToFloats<T>(residuals[u]);
        unsigned passed = 0;
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          float value = norm(values.values[i], i);
          if constexpr (kResidual) value += residual.values[i];
          if constexpr (kRelu) {
            // Not what is below 0, so that NaN goes on as NaN.
            if (value <= 0) {
              value = 0;
            } else {
              passed |= 1u << i;
            }
          }
          values.values[i] = value;
        }
        Store(t.y, index(row), FromFloats<T>(values));
        if constexpr (kRelu && kResidual) {
          if (t.mask != nullptr) t.mask[index(row)] = static_cast<uint8_t>(passed);
        }
      });
}

// What of dy ReLU let pass.
enum class Gate { kAll, kWhereNormIsPositive, kMask };

template <Gate kGate, int kSize>
__device__ bool Passes(const Affine<kSize>& norm, float x, unsigned mask, int i) {
  if constexpr (kGate == Gate::kWhereNormIsPositive) return !(norm(x, i) <= 0);
  if constexpr (kGate == Gate::kMask) return (mask >> i & 1) != 0;
  return true;
}

// Sums of dz (x - mean) and of dz.
template <typename T, Gate kGate>
__global__ void __launch_bounds__(kThreads) Sums(BatchNormBackward t, BatchNormShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t packs = shape.channels / kSize;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  Floats<kSize> sums[2] = {};
  if (pack < packs) {
    const Affine<kSize> norm =
        AffineOf<kSize>(t.weight, t.bias, t.statistics, shape.channels, pack);
    const Floats<kSize> mean = LoadFloats<kSize>(t.statistics, pack);
    uint4 loaded[kUnroll];
    uint4 gradients[kUnroll];
    unsigned masks[kUnroll] = {};
    ForEachRow(
        shape.rows,
        [&](int64_t row, int u) {
          loaded[u] = Load(t.x, row * packs + pack);
          gradients[u] = Load(t.dy, row * packs + pack);
          if constexpr (kGate == Gate::kMask) masks[u] = t.mask[row * packs + pack];
        },
        [&](int64_t, int u) {
          const Floats<kSize> values = ToFloats<T>(loaded[u]);
          const Floats<kSize> gradient = ToFloats<T>(gradients[u]);
#pragma unroll
          for (int i = 0; i < kSize; ++i) {
            const float x = values.values[i];
            const float dz = Passes<kGate>(norm, x, masks[u], i) ? gradient.values[i] : 0;
            sums[0].values[i] = fmaf(dz, x - mean.values[i], sums[0].values[i]);
            sums[1].values[i] += dz;
          }
        });
  }
  WritePartials(sums, t.partials, shape.channels);
}

static __global__ void __launch_bounds__(kPartialSlices* kPartialColumns)
    FinishSums(BatchNormBackward t, BatchNormShape shape, int64_t partial_rows) {
  WithSums(t.partials, partial_rows, shape.channels, [&](int64_t channel, const float(&sums)[2]) {
    t.d_weights[channel] = sums[0] * t.statistics[shape.channels + channel];
    t.d_weights[shape.channels + channel] = sums[1];
  });
}

template <typename T, Gate kGate>
__global__ void __launch_bounds__(kThreads) Backward(BatchNormBackward t, BatchNormShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t packs = shape.channels / kSize;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const Affine<kSize> norm = AffineOf<kSize>(t.weight, t.bias, t.statistics, shape.channels, pack);
  const Floats<kSize> mean = LoadFloats<kSize>(t.statistics, pack);
  // dx = scale dz + slope (x - mean) + constant
  Floats<kSize> slope = LoadFloats<kSize>(t.statistics + shape.channels, pack);
  Floats<kSize> constant = LoadFloats<kSize>(t.d_weights + shape.channels, pack);
  {
    const Floats<kSize> d_weight = LoadFloats<kSize>(t.d_weights, pack);
    const float share = 1 / static_cast<float>(shape.rows);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      const float scale = -norm.scale.values[i] * share;
      slope.values[i] *= scale * d_weight.values[i];
      constant.values[i] *= scale;
    }
  }
  const auto index = [&](int64_t row) { return (shape.rows - 1 - row) * packs + pack; };
  uint4 loaded[kUnroll];
  uint4 gradients[kUnroll];
  unsigned masks[kUnroll] = {};
  ForEachRow(
      shape.rows,
      [&](int64_t row, int u) {
        loaded[u] = Load(t.x, index(row));
        gradients[u] = Load(t.dy, index(row));
        if constexpr (kGate == Gate::kMask) masks[u] = t.mask[index(row)];
      },
      [&](int64_t row, int u) {
        Floats<kSize> values = ToFloats<T>(loaded[u]);
        Floats<kSize> gradient = ToFloats<T>(gradients[u]);
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          const float x = values.values[i];
          if (!Passes<kGate>(norm, x, masks[u], i)) gradient.values[i] = 0;
          values.values[i] = fmaf(norm.scale.values[i], gradient.values[i],
                                  fmaf(slope.values[i], x - mean.values[i], constant.values[i]));
        }
        Store(t.dx, index(row), FromFloats<T>(values));
        if constexpr (kGate == Gate::kMask) {
          if (t.d_residual != nullptr) Store(t.d_residual, index(row), FromFloats<T>(gradient));
        }
      });
}

// As many blocks as the GPU holds at once.
template <typename Tensors>
void LaunchForEachRow(void (*kernel)(Tensors, BatchNormShape), const Tensors& tensors, int pack,
                      const BatchNormShape& shape, cudaStream_t stream) {
  const Tiling tiling = TilingOf(shape, pack);
  int resident = 1;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &resident, kernel, static_cast<int>(tiling.threads.x * tiling.threads.y), 0);
  kernel<<<tiling.Grid(shape.multiprocessors, resident), tiling.threads, 0, stream>>>(tensors,
                                                                                      shape);
}

// Calls `sum`, whose blocks share the sums, and `finish`, which adds up theirs.
template <typename Tensors>
void LaunchSums(void (*sum)(Tensors, BatchNormShape),
                void (*finish)(Tensors, BatchNormShape, int64_t), const Tensors& tensors, int pack,
                const BatchNormShape& shape, cudaStream_t stream) {
  const Tiling tiling = TilingOf(shape, pack);
  const dim3 grid = tiling.Grid(shape.multiprocessors, kBlocksPerMultiprocessor);
  sum<<<grid, tiling.threads, 0, stream>>>(tensors, shape);
  const auto blocks =
      static_cast<unsigned>((shape.channels + kPartialColumns - 1) / kPartialColumns);
  finish<<<blocks, dim3(kPartialColumns, kPartialSlices), 0, stream>>>(tensors, shape, grid.y);
}

template <typename T, Gate kGate>
void BackwardOf(const BatchNormBackward& t, const BatchNormShape& shape, cudaStream_t stream) {
  LaunchSums(Sums<T, kGate>, FinishSums, t, Pack<T>::kSize, shape, stream);
  LaunchForEachRow(Backward<T, kGate>, t, Pack<T>::kSize, shape, stream);
}

}  // namespace

int64_t BatchNormPartialRows(FloatType type, const BatchNormShape& shape) {
  return TilingOf(shape, ChannelsOfPack(type))
      .Grid(shape.multiprocessors, kBlocksPerMultiprocessor)
      .y;
}

void LaunchBatchNormStatistics(const BatchNormStatistics& tensors, FloatType type,
                               const BatchNormShape& shape, cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    LaunchSums(Statistics<T>, FinishStatistics<T>, tensors, Pack<T>::kSize, shape, stream);
  });
}

void LaunchBatchNorm(const BatchNormForward& tensors, FloatType type, const BatchNormShape& shape,
                     cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel = !tensors.relu                 ? Forward<T, false, false>
                        : tensors.residual == nullptr ? Forward<T, true, false>
                                                      : Forward<T, true, true>;
    LaunchForEachRow(kernel, tensors, Pack<T>::kSize, shape, stream);
  });
}

void LaunchBatchNormBackward(const BatchNormBackward& tensors, FloatType type,
                             const BatchNormShape& shape, cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    if (!tensors.relu) return BackwardOf<T, Gate::kAll>(tensors, shape, stream);
    if (tensors.mask == nullptr) {
      return BackwardOf<T, Gate::kWhereNormIsPositive>(tensors, shape, stream);
    }
    return BackwardOf<T, Gate::kMask>(tensors, shape, stream);
  });
}

}  // namespace lockstep::ops
