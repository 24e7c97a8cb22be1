#include <algorithm>
#include <type_traits>

#include "base/ceil_divide.h"
#include "ops/common/pack.cuh"
#include "ops/common/strided_rows.cuh"
#include "ops/norm/batch_norm_kernel.h"
#include "ops/norm/norm_affine.cuh"
#include "ops/product/activation.cuh"

namespace lockstep::ops {
namespace {

// Each thread processes one pack of channels in every stride-th row, and keeps the weights and statistics of these
// channels in registers. A block is as many packs wide as a row has, up to a limit, and as many rows high as kThreads
// allows. The kernels that compute sums over rows go through the rows from the first to the last. The kernels that use
// the sums go from the last row to the first, so that they begin with rows that are still in the L2 cache.
constexpr int kThreads = 256;
constexpr int kUnroll = 4;  // the number of rows whose loads a thread has in flight

// The last block of a tile of channels adds up the partial sums of all blocks of the tile, while the rest of the GPU
// waits. With narrow tiles this takes less time, because fewer blocks share a tile. A tile is therefore only a cache
// line wide, kSumPacks packs. There are only kSumBlocks blocks for each multiprocessor, which keeps the number of
// blocks that share a tile small. Each thread has many loads in flight, so that these few blocks keep memory busy.
constexpr int kSumPacks = 8;
constexpr int kSumBlocks = 2;       // the number of blocks per multiprocessor
constexpr int kStatisticsRows = 8;  // the number of rows whose loads a thread has in flight
// The number of rows of partial sums whose loads a thread has in flight.
constexpr int kPartialRows = 12;

// The distribution of the blocks of a grid over a matrix [rows, channels].
struct Tiling {
  dim3 threads;      // the size of a block: packs, rows
  unsigned columns;  // the number of blocks that share a row
  // The maximum number of blocks in a column. With this many blocks each thread has about kUnroll rows.
  int64_t most;

  // Returns a grid with at most `per_multiprocessor` blocks on each multiprocessor, and at least one block in each
  // column.
  dim3 Grid(int multiprocessors, int per_multiprocessor) const {
    const int64_t resident = int64_t{multiprocessors} * std::max(per_multiprocessor, 1) / columns;
    return {columns, static_cast<unsigned>(std::clamp<int64_t>(resident, 1, most))};
  }
};

// Returns a tiling whose blocks all have about the same width, which is at most `widest` packs.
Tiling TilingOf(const BatchNormShape& shape, int pack, int64_t widest) {
  const int64_t packs = shape.channels / pack;
  const int64_t columns = CeilDivide(packs, widest);
  const auto wide = static_cast<unsigned>(CeilDivide(packs, columns));
  const unsigned high = kThreads / wide;
  return {.threads = dim3(wide, high),
          .columns = static_cast<unsigned>(columns),
          .most = CeilDivide(shape.rows, int64_t{high} * kUnroll)};
}

// Returns the rows, below `rows`, that this thread processes.
__device__ StridedRows RowsOf(int64_t rows) {
  return {.first = int64_t{blockIdx.y} * blockDim.y + threadIdx.y,
          .stride = int64_t{gridDim.y} * blockDim.y,
          .end = rows};
}

// Adds up `sums`, the threads' sums over rows, for a tile of channels whose rows several blocks share. Then computes
// the results of each channel: End::Prepare(t, shape, channel) loads the values that the results need, and
// End::Finish(t, shape, channel, sums) is called with the complete sums and writes the results.
//
// Each block writes its own sums to partials[tile, block, kColumns, packs]. The last block that writes its sums adds up
// the sums of all blocks, in an order that does not depend on which block is the last.
template <typename End, typename Tensors, int kSize, int kSums>
__device__ void AddUp(const Floats<kSize> (&sums)[kSums], const Tensors& t,
                      const BatchNormShape& shape) {
  constexpr int kColumns = kSums * kSize;  // the number of sums of a pack
  static_assert(kColumns <= kThreads / kSumPacks, "each column of a tile has a thread");
  const int packs = static_cast<int>(blockDim.x);
  const int high = static_cast<int>(blockDim.y);
  const int thread = static_cast<int>(threadIdx.y) * packs + static_cast<int>(threadIdx.x);
  // The rows are padded, so that a warp that adds up four columns of eight packs reads from different memory banks.
  __shared__ float shared[kColumns][kThreads + kSumPacks];
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) shared[s * kSize + i][thread] = sums[s].values[i];
  }
  __syncthreads();
  float* partials = t.partials + int64_t{blockIdx.x} * gridDim.y * kColumns * packs;
  if (threadIdx.y < kColumns) {
    float sum = 0;
#pragma unroll 8
    for (int row = 0; row < high; ++row) sum += shared[threadIdx.y][row * packs + threadIdx.x];
    partials[int64_t{blockIdx.y} * kColumns * packs + thread] = sum;
  }
  __shared__ bool is_last;
  __syncthreads();
  if (thread == 0) {
    // The fence makes this block's partial sums visible before the counter is incremented. The last block therefore
    // sees the partial sums of all blocks.
    __threadfence();
    is_last = atomicAdd(&t.counters[blockIdx.x], 1) == static_cast<int>(gridDim.y) - 1;
    if (is_last) {
      __threadfence();
      t.counters[blockIdx.x] = 0;
    }
  }
  __syncthreads();
  if (!is_last) return;

  const int64_t channel = (int64_t{blockIdx.x} * packs + threadIdx.x) * kSize + threadIdx.y;
  const bool has_channel = threadIdx.y < kSize && channel < shape.channels;
  End end;
  if (has_channel) end.Prepare(t, shape, channel);
  // Each thread adds up four columns of the partial sums over every slices-th row.
  __shared__ float shared_slices[kThreads][4];
  const int quads = kColumns * packs / 4;
  const int slices = packs * high / quads;
  const int slice = thread / quads;
  if (slice < slices) {
    const auto* from = reinterpret_cast<const float4*>(partials) + thread % quads;
    float4 loaded[kPartialRows];
    float four[4] = {};
    ForEachRow<kPartialRows>(
        StridedRows{.first = slice, .stride = slices, .end = gridDim.y},
        // The load bypasses the L1 cache, which may hold old values instead of those that other multiprocessors have
        // written.
        [&](int64_t row, int u) { loaded[u] = __ldcg(from + row * quads); },
        [&](int64_t, int u) {
          four[0] += loaded[u].x;
          four[1] += loaded[u].y;
          four[2] += loaded[u].z;
          four[3] += loaded[u].w;
        });
#pragma unroll
    for (int i = 0; i < 4; ++i) shared_slices[thread][i] = four[i];
  }
  __syncthreads();
  if (!has_channel) return;
  float channel_sums[kSums] = {};
#pragma unroll 4
  for (int other = 0; other < slices; ++other) {
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      const int column = s * kSize * packs + thread;
      channel_sums[s] += shared_slices[other * quads + column / 4][column % 4];
    }
  }
  end.Finish(t, shape, channel, channel_sums);
}

// Writes the BatchNormResults of one channel. Prepare() loads the old values, and Finish() writes the new values.
class Results {
 public:
  __device__ void Prepare(const BatchNormResults& t, int64_t channel) {
    if (t.running_mean != nullptr) {
      running_mean_ = t.running_mean[channel];
      running_var_ = t.running_var[channel];
    }
    if (Counts(t, channel)) batches_ = *t.num_batches_tracked;
  }
  __device__ void Finish(const BatchNormResults& t, int64_t channels, int64_t channel, float mean,
                         float variance, float rows) const {
    t.statistics[channel] = mean;
    t.statistics[channels + channel] = rsqrtf(variance + t.epsilon);
    if (channel == 0) t.statistics[2 * channels] = rows;
    if (Counts(t, channel)) *t.num_batches_tracked = batches_ + 1;
    if (t.running_mean == nullptr) return;
    const auto followed = [&](float running, float value) {
      return fmaf(t.momentum, value - running, running);
    };
    t.running_mean[channel] = followed(running_mean_, mean);
    t.running_var[channel] = followed(running_var_, variance * (rows / (rows - 1)));
  }

 private:
  // Returns whether the thread of this channel increments num_batches_tracked, which only the thread of channel 0 does.
  __device__ static bool Counts(const BatchNormResults& t, int64_t channel) {
    return channel == 0 && t.num_batches_tracked != nullptr;
  }
  float running_mean_;
  float running_var_;
  int64_t batches_;
};

struct Moments {
  float mean;
  float variance;
};

// Returns the moments of x. `sums` are the sums of x - pivot and of (x - pivot)^2.
__device__ Moments MomentsOf(float pivot, const float (&sums)[2], float rows) {
  const float offset = sums[0] / rows;
  // std::max() or fmaxf() could turn NaN into 0; the conditional expression below keeps NaN.
  const float difference = sums[1] / rows - offset * offset;
  return {.mean = pivot + offset, .variance = difference < 0 ? 0 : difference};
}

template <typename T>
class StatisticsEnd {
 public:
  using Tensors = BatchNormStatistics;
  __device__ void Prepare(const Tensors& t, const BatchNormShape&, int64_t channel) {
    pivot_ = ToFloat(static_cast<const T*>(t.x)[channel]);
    results_.Prepare(t.results, channel);
  }
  __device__ void Finish(const Tensors& t, const BatchNormShape& shape, int64_t channel,
                         const float (&sums)[2]) const {
    const auto rows = static_cast<float>(shape.rows);
    const auto [mean, variance] = MomentsOf(pivot_, sums, rows);
    results_.Finish(t.results, shape.channels, channel, mean, variance, rows);
  }

 private:
  float pivot_;
  Results results_;
};

template <typename T>
class MomentsEnd {
 public:
  using Tensors = BatchNormMoments;
  __device__ void Prepare(const Tensors& t, const BatchNormShape&, int64_t channel) {
    pivot_ = ToFloat(static_cast<const T*>(t.x)[channel]);
  }
  __device__ void Finish(const Tensors& t, const BatchNormShape& shape, int64_t channel,
                         const float (&sums)[2]) const {
    const auto rows = static_cast<float>(shape.rows);
    const auto [mean, variance] = MomentsOf(pivot_, sums, rows);
    t.moments[channel] = mean;
    t.moments[shape.channels + channel] = variance * rows;
    if (channel == 0) t.moments[2 * shape.channels] = rows;
  }

 private:
  float pivot_;
};

// Computes the sums of x - pivot and of (x - pivot)^2. The pivot is the channel's first value. If the values are far
// from 0 and close together, sums of x^2 would lose all digits of the variance to rounding.
template <typename T, typename End>
__global__ void __launch_bounds__(kThreads, kSumBlocks)
    Statistics(typename End::Tensors t, BatchNormShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t packs = shape.channels / kSize;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  Floats<kSize> sums[2] = {};
  if (pack < packs) {
    const Floats<kSize> pivot = ToFloats<T>(Load(t.x, pack));
    uint4 loaded[kStatisticsRows];
    ForEachRow<kStatisticsRows>(
        RowsOf(shape.rows), [&](int64_t row, int u) { loaded[u] = Load(t.x, row * packs + pack); },
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
  AddUp<End>(sums, t, shape);
}

// Combines the moments of the ranks by the formula of Chan et al. (1979), with one thread for each channel.
__global__ void __launch_bounds__(kThreads) StatisticsOfRanks(BatchNormRanks t, int64_t channels) {
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (channel >= channels) return;
  Results results;
  results.Prepare(t.results, channel);
  float rows = 0;
  float sum = 0;
  const auto moments_of = [&](int64_t rank) { return t.moments + rank * (2 * channels + 1); };
#pragma unroll 8
  for (int64_t rank = 0; rank < t.ranks; ++rank) {
    const float* own = moments_of(rank);
    rows += own[2 * channels];
    sum = fmaf(own[2 * channels], own[channel], sum);
  }
  const float mean = sum / rows;
  float squares = 0;
#pragma unroll 8
  for (int64_t rank = 0; rank < t.ranks; ++rank) {
    const float* own = moments_of(rank);
    const float difference = own[channel] - mean;
    squares += fmaf(own[2 * channels] * difference, difference, own[channels + channel]);
  }
  // A batch of one row has no unbiased variance, so it does not change the running statistics.
  if (rows == 1) t.results.running_mean = nullptr;
  results.Finish(t.results, channels, channel, mean, squares / rows, rows);
}

// Returns whether the activation has slopes other than 0 and 1.
constexpr bool IsSmooth(BatchNormForm form) {
  return form == BatchNormForm::kSilu || form == BatchNormForm::kHardswish;
}

constexpr Activation SmoothOf(BatchNormForm form) {
  return form == BatchNormForm::kSilu ? Activation::kSilu : Activation::kHardswish;
}

template <int kSize>
__device__ Affine<kSize> NormOf(const BatchNormInput& input, int64_t channels, int64_t pack) {
  return AffineOf<kSize>(input.weight, input.bias, input.statistics, channels, pack);
}

template <typename T, BatchNormForm kForm>
__global__ void __launch_bounds__(kThreads) Forward(BatchNormForward t, BatchNormShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr bool kJoins = kForm == BatchNormForm::kJoinRelu;
  // With two inputs a thread has only half as many rows in flight, so that it needs only 64 registers and four blocks
  // are resident on a multiprocessor.
  constexpr int kRows = kUnroll / InputsOf(kForm);
  const int64_t packs = shape.channels / kSize;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  Affine<kSize> norm = NormOf<kSize>(t.inputs[0], shape.channels, pack);
  Affine<kSize> other;
  if constexpr (kJoins) {
    other = NormOf<kSize>(t.inputs[1], shape.channels, pack);
    // The sum of two norms needs only the sum of the two shifts, which takes half the registers.
#pragma unroll
    for (int i = 0; i < kSize; ++i) norm.shift.values[i] += other.shift.values[i];
  }
  const auto index = [&](int64_t row) { return (shape.rows - 1 - row) * packs + pack; };
  uint4 loaded[kRows];
  uint4 addends[kRows];
  ForEachRow<kRows>(
      RowsOf(shape.rows),
      [&](int64_t row, int u) {
        loaded[u] = Load(t.inputs[0].x, index(row));
        if constexpr (kForm == BatchNormForm::kAddRelu) addends[u] = Load(t.residual, index(row));
        if constexpr (kJoins) addends[u] = Load(t.inputs[1].x, index(row));
      },
      [&](int64_t row, int u) {
        Floats<kSize> values = ToFloats<T>(loaded[u]);
        Floats<kSize> addend;
        if constexpr (HasMask(kForm)) addend = ToFloats<T>(addends[u]);
        unsigned passed = 0;
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          float value = norm(values.values[i], i);
          if constexpr (kForm == BatchNormForm::kAddRelu) value += addend.values[i];
          if constexpr (kJoins) value = fmaf(addend.values[i], other.scale.values[i], value);
          if constexpr (IsSmooth(kForm)) {
            value = ActivationAt<SmoothOf(kForm)>(value).y;
          } else if constexpr (kForm != BatchNormForm::kNorm) {
            // For NaN the comparison is false, so NaN stays NaN.
            if (value <= 0) {
              value = 0;
            } else {
              passed |= 1u << i;
            }
          }
          values.values[i] = value;
        }
        Store(t.y, index(row), FromFloats<T>(values));
        if constexpr (HasMask(kForm)) t.mask[index(row)] = static_cast<uint8_t>(passed);
      });
}

// Returns the gradient before the activation, dz, for channel i of the pack. `gradient` is the gradient of the
// activation's result.
template <BatchNormForm kForm, int kSize>
__device__ float BeforeActivation(float gradient, const Affine<kSize>& norm, float x, unsigned mask,
                                  int i) {
  if constexpr (IsSmooth(kForm)) return gradient * ActivationAt<SmoothOf(kForm)>(norm(x, i)).slope;
  if constexpr (kForm == BatchNormForm::kRelu) return norm(x, i) <= 0 ? 0 : gradient;
  if constexpr (HasMask(kForm)) return (mask >> i & 1) != 0 ? gradient : 0;
  return gradient;
}

template <int kInputs>
class SumsEnd {
 public:
  __device__ void Prepare(const BatchNormBackward& t, const BatchNormShape& shape,
                          int64_t channel) {
#pragma unroll
    for (int n = 0; n < kInputs; ++n) {
      rstd_[n] = t.inputs[n].statistics[shape.channels + channel];
      d_weight_[n] = BaseOf(t.d_weight[n], channel);
      d_bias_[n] = BaseOf(t.d_bias[n], channel);
    }
  }
  __device__ void Finish(const BatchNormBackward& t, const BatchNormShape& shape, int64_t channel,
                         const float (&sums)[1 + kInputs]) const {
#pragma unroll
    for (int n = 0; n < kInputs; ++n) {
      const float d_weight = sums[1 + n] * rstd_[n];
      float* own = t.d_weights + n * 2 * shape.channels + channel;
      own[0] = d_weight;
      own[shape.channels] = sums[0];
      if (t.d_weight[n].sums != nullptr) t.d_weight[n].sums[channel] = d_weight_[n] + d_weight;
      if (t.d_bias[n].sums != nullptr) t.d_bias[n].sums[channel] = d_bias_[n] + sums[0];
    }
  }

 private:
  // Returns the value to which the channel's sum is added: the old value in `to`, or 0 if the sum overwrites the old
  // value.
  __device__ static float BaseOf(const SumsTo& to, int64_t channel) {
    return to.sums != nullptr && to.adds ? to.sums[channel] : 0;
  }
  float rstd_[kInputs];
  float d_weight_[kInputs];
  float d_bias_[kInputs];
};

// Computes the sums over rows of dz, and of dz (x - mean) for each input.
template <typename T, BatchNormForm kForm>
__global__ void __launch_bounds__(kThreads, kSumBlocks)
    Sums(BatchNormBackward t, BatchNormShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kInputs = InputsOf(kForm);
  const int64_t packs = shape.channels / kSize;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  Floats<kSize> sums[1 + kInputs] = {};
  if (pack < packs) {
    const Affine<kSize> norm = NormOf<kSize>(t.inputs[0], shape.channels, pack);
    Floats<kSize> means[kInputs];
#pragma unroll
    for (int n = 0; n < kInputs; ++n) means[n] = LoadFloats<kSize>(t.inputs[n].statistics, pack);
    uint4 loaded[kUnroll][kInputs];
    uint4 gradients[kUnroll];
    unsigned masks[kUnroll] = {};
    ForEachRow<kUnroll>(
        RowsOf(shape.rows),
        [&](int64_t row, int u) {
#pragma unroll
          for (int n = 0; n < kInputs; ++n) {
            loaded[u][n] = Load(t.inputs[n].x, row * packs + pack);
          }
          gradients[u] = Load(t.dy, row * packs + pack);
          if constexpr (HasMask(kForm)) masks[u] = t.mask[row * packs + pack];
        },
        [&](int64_t, int u) {
          Floats<kSize> values[kInputs];
#pragma unroll
          for (int n = 0; n < kInputs; ++n) values[n] = ToFloats<T>(loaded[u][n]);
          const Floats<kSize> gradient = ToFloats<T>(gradients[u]);
#pragma unroll
          for (int i = 0; i < kSize; ++i) {
            const float dz =
                BeforeActivation<kForm>(gradient.values[i], norm, values[0].values[i], masks[u], i);
            sums[0].values[i] += dz;
#pragma unroll
            for (int n = 0; n < kInputs; ++n) {
              sums[1 + n].values[i] =
                  fmaf(dz, values[n].values[i] - means[n].values[i], sums[1 + n].values[i]);
            }
          }
        });
  }
  AddUp<SumsEnd<kInputs>>(sums, t, shape);
}

template <typename T, BatchNormForm kForm>
__global__ void __launch_bounds__(kThreads) Backward(BatchNormBackward t, BatchNormShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kInputs = InputsOf(kForm);
  // With two inputs a thread has only half as many rows in flight. With more rows in flight a thread would need so many
  // registers that only one block would fit on a multiprocessor.
  constexpr int kRows = kUnroll / kInputs;
  const int64_t packs = shape.channels / kSize;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const Affine<kSize> norm = NormOf<kSize>(t.inputs[0], shape.channels, pack);
  InputGradient<kSize> dx[kInputs];
#pragma unroll
  for (int n = 0; n < kInputs; ++n) {
    dx[n] = InputGradientOf<kSize>(t.inputs[n].weight, t.inputs[n].statistics,
                                   t.d_weights + n * 2 * shape.channels, shape.channels, pack);
  }
  const auto index = [&](int64_t row) { return (shape.rows - 1 - row) * packs + pack; };
  uint4 loaded[kRows][kInputs];
  uint4 gradients[kRows];
  unsigned masks[kRows] = {};
  ForEachRow<kRows>(
      RowsOf(shape.rows),
      [&](int64_t row, int u) {
#pragma unroll
        for (int n = 0; n < kInputs; ++n) loaded[u][n] = Load(t.inputs[n].x, index(row));
        gradients[u] = Load(t.dy, index(row));
        if constexpr (HasMask(kForm)) masks[u] = t.mask[index(row)];
      },
      [&](int64_t row, int u) {
        Floats<kSize> dz = ToFloats<T>(gradients[u]);
#pragma unroll
        for (int n = 0; n < kInputs; ++n) {
          Floats<kSize> values = ToFloats<T>(loaded[u][n]);
#pragma unroll
          for (int i = 0; i < kSize; ++i) {
            const float x = values.values[i];
            if (n == 0) dz.values[i] = BeforeActivation<kForm>(dz.values[i], norm, x, masks[u], i);
            values.values[i] = dx[n](dz.values[i], x, i);
          }
          Store(t.dx[n], index(row), FromFloats<T>(values));
        }
        if constexpr (kForm == BatchNormForm::kAddRelu) {
          if (t.d_residual != nullptr) Store(t.d_residual, index(row), FromFloats<T>(dz));
        }
      });
}

// Launches `kernel` with as many blocks as can be resident on the GPU at the same time.
template <typename Tensors>
void LaunchForEachRow(void (*kernel)(Tensors, BatchNormShape), const Tensors& tensors, int pack,
                      const BatchNormShape& shape, cudaStream_t stream) {
  const Tiling tiling = TilingOf(shape, pack, kThreads);
  int resident = 1;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &resident, kernel, static_cast<int>(tiling.threads.x * tiling.threads.y), 0);
  kernel<<<tiling.Grid(shape.multiprocessors, resident), tiling.threads, 0, stream>>>(tensors,
                                                                                      shape);
}

template <typename Tensors>
void LaunchSums(void (*kernel)(Tensors, BatchNormShape), const Tensors& tensors, int pack,
                const BatchNormShape& shape, cudaStream_t stream) {
  const Tiling tiling = TilingOf(shape, pack, kSumPacks);
  kernel<<<tiling.Grid(shape.multiprocessors, kSumBlocks), tiling.threads, 0, stream>>>(tensors,
                                                                                        shape);
}

// Calls launch() with the form as a std::integral_constant.
template <typename Launch>
void WithForm(BatchNormForm form, const Launch& launch) {
  switch (form) {
    case BatchNormForm::kNorm:
      return launch(std::integral_constant<BatchNormForm, BatchNormForm::kNorm>());
    case BatchNormForm::kRelu:
      return launch(std::integral_constant<BatchNormForm, BatchNormForm::kRelu>());
    case BatchNormForm::kSilu:
      return launch(std::integral_constant<BatchNormForm, BatchNormForm::kSilu>());
    case BatchNormForm::kHardswish:
      return launch(std::integral_constant<BatchNormForm, BatchNormForm::kHardswish>());
    case BatchNormForm::kAddRelu:
      return launch(std::integral_constant<BatchNormForm, BatchNormForm::kAddRelu>());
    case BatchNormForm::kJoinRelu:
      return launch(std::integral_constant<BatchNormForm, BatchNormForm::kJoinRelu>());
  }
}

}  // namespace

int64_t BatchNormPartials(FloatType type, const BatchNormShape& shape, int sums) {
  const int pack = ChannelsOfPack(type);
  const Tiling tiling = TilingOf(shape, pack, kSumPacks);
  const dim3 grid = tiling.Grid(shape.multiprocessors, kSumBlocks);
  return int64_t{grid.x} * grid.y * sums * pack * tiling.threads.x;
}

int64_t BatchNormCounters(int64_t channels) {
  return CeilDivide(channels, kSumPacks * ChannelsOfPack(FloatType::kFloat32));
}

void LaunchBatchNormStatistics(const BatchNormStatistics& tensors, FloatType type,
                               const BatchNormShape& shape, cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    LaunchSums(Statistics<T, StatisticsEnd<T>>, tensors, Pack<T>::kSize, shape, stream);
  });
}

void LaunchBatchNormMoments(const BatchNormMoments& tensors, FloatType type,
                            const BatchNormShape& shape, cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    LaunchSums(Statistics<T, MomentsEnd<T>>, tensors, Pack<T>::kSize, shape, stream);
  });
}

void LaunchBatchNormRanks(const BatchNormRanks& tensors, int64_t channels, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(CeilDivide(channels, kThreads));
  StatisticsOfRanks<<<blocks, kThreads, 0, stream>>>(tensors, channels);
}

void LaunchBatchNorm(const BatchNormForward& tensors, FloatType type, const BatchNormShape& shape,
                     cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    WithForm(tensors.form, [&](auto form) {
      LaunchForEachRow(Forward<T, form.value>, tensors, Pack<T>::kSize, shape, stream);
    });
  });
}

void LaunchBatchNormSums(const BatchNormBackward& tensors, FloatType type,
                         const BatchNormShape& shape, cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    WithForm(tensors.form, [&](auto form) {
      LaunchSums(Sums<T, form.value>, tensors, Pack<T>::kSize, shape, stream);
    });
  });
}

void LaunchBatchNormBackward(const BatchNormBackward& tensors, FloatType type,
                             const BatchNormShape& shape, cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    WithForm(tensors.form, [&](auto form) {
      LaunchForEachRow(Backward<T, form.value>, tensors, Pack<T>::kSize, shape, stream);
    });
  });
}

}  // namespace lockstep::ops
