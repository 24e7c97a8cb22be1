#include <algorithm>

#include "trainer/ops/layer_norm_kernel.h"
#include "trainer/ops/pack.cuh"
#include "trainer/ops/partial_sums.cuh"

namespace lockstep::ops {
namespace {

// A row is a team's: a warp, or a block where the row is long. Each thread of it holds kPacks packs
// of the row in registers, pack i being the row's pack i kTeam + thread. Grids are as large as the
// GPU holds at once, and teams walk the rows with a stride.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMostPacks = kThreads * 4;  // of a row

// The team's sum, in each of its threads. warps: shared memory, where a team is more than a warp.
// Two that take turns need no barrier between them: a thread that writes the one is past the
// barrier of the other, which all reach after they have read this one.
template <int kTeam>
__device__ float TeamSum(float value, float* warps) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  if constexpr (kTeam > 32) {
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
#pragma unroll
    for (int warp = 0; warp < kTeam / 32; ++warp) value += warps[warp];
  }
  return value;
}

template <typename T, int kTeam, int kPacks>
__global__ void __launch_bounds__(kThreads, 2) Forward(LayerNormForward t, LayerNormShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kTeams = kThreads / kTeam;
  __shared__ float warps[2][kWarps];
  const int thread = threadIdx.x % kTeam;
  const int packs = static_cast<int>(shape.width / kSize);
  const auto width = static_cast<float>(shape.width);
  float weight[kPacks][kSize];
  float bias[kPacks][kSize];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (thread + i * kTeam < packs) {
      LoadWeights(t.weight, thread + i * kTeam, weight[i]);
      LoadWeights(t.bias, thread + i * kTeam, bias[i]);
    }
  }
  for (int64_t row = int64_t{blockIdx.x} * kTeams + threadIdx.x / kTeam; row < shape.rows;
       row += int64_t{gridDim.x} * kTeams) {
    const T* x = static_cast<const T*>(t.x) + row * shape.width;
    uint4 values[kPacks];
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (thread + i * kTeam < packs) values[i] = Load(x, thread + i * kTeam);
    }
    if (t.branch != nullptr) {
      const T* branch = static_cast<const T*>(t.branch) + row * shape.width;
      T* sum = static_cast<T*>(t.sum) + row * shape.width;
      uint4 others[kPacks];
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (thread + i * kTeam < packs) others[i] = Load(branch, thread + i * kTeam);
      }
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (thread + i * kTeam >= packs) continue;
        Pack<T> pack = Unpack<T>(values[i]);
        const Pack<T> other = Unpack<T>(others[i]);
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
          pack.values[j] = FromFloat<T>(ToFloat(pack.values[j]) + ToFloat(other.values[j]));
        }
        values[i] = __builtin_bit_cast(uint4, pack);
        Store(sum, thread + i * kTeam, pack);
      }
    }

    float total = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (thread + i * kTeam >= packs) continue;
      const Pack<T> pack = Unpack<T>(values[i]);
#pragma unroll
      for (int j = 0; j < kSize; ++j) total += ToFloat(pack.values[j]);
    }
    const float mean = TeamSum<kTeam>(total, warps[0]) / width;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (thread + i * kTeam >= packs) continue;
      const Pack<T> pack = Unpack<T>(values[i]);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float deviation = ToFloat(pack.values[j]) - mean;
        squares += deviation * deviation;
      }
    }
    const float rstd = rsqrtf(TeamSum<kTeam>(squares, warps[1]) / width + t.epsilon);

    T* y = static_cast<T*>(t.y) + row * shape.width;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (thread + i * kTeam >= packs) continue;
      Pack<T> pack = Unpack<T>(values[i]);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float normal = (ToFloat(pack.values[j]) - mean) * rstd;
        pack.values[j] = FromFloat<T>(normal * weight[i][j] + bias[i][j]);
      }
      Store(y, thread + i * kTeam, pack);
    }
    if (thread == 0) t.statistics[row] = {mean, rstd};
  }
}

// Any width and address: the row is read again for each of its sums, from cache.
template <typename T>
__global__ void __launch_bounds__(kThreads) ForwardAny(LayerNormForward t, LayerNormShape shape) {
  __shared__ float warps[2][kWarps];
  const auto width = static_cast<float>(shape.width);
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(t.x) + row * shape.width;
    if (t.branch != nullptr) {
      const T* branch = static_cast<const T*>(t.branch) + row * shape.width;
      T* sum = static_cast<T*>(t.sum) + row * shape.width;
      for (int64_t c = threadIdx.x; c < shape.width; c += kThreads) {
        sum[c] = FromFloat<T>(ToFloat(x[c]) + ToFloat(branch[c]));
      }
      x = sum;  // each thread reads what it has written itself
    }
    float total = 0;
    for (int64_t c = threadIdx.x; c < shape.width; c += kThreads) total += ToFloat(x[c]);
    const float mean = TeamSum<kThreads>(total, warps[0]) / width;
    float squares = 0;
    for (int64_t c = threadIdx.x; c < shape.width; c += kThreads) {
      const float deviation = ToFloat(x[c]) - mean;
      squares += deviation * deviation;
    }
    const float rstd = rsqrtf(TeamSum<kThreads>(squares, warps[1]) / width + t.epsilon);
    T* y = static_cast<T*>(t.y) + row * shape.width;
    for (int64_t c = threadIdx.x; c < shape.width; c += kThreads) {
      y[c] = FromFloat<T>((ToFloat(x[c]) - mean) * rstd * t.weight[c] + t.bias[c]);
    }
    if (threadIdx.x == 0) t.statistics[row] = {mean, rstd};
  }
}

// So many that what a thread holds (16 sums a pack in 16 bits, and three packs) stays in registers.
constexpr int BackwardBlocks(int packs) {
  return packs == 1 ? kLayerNormBlocksPerMultiprocessor : packs == 2 ? 3 : 2;
}

template <typename T, int kTeam, int kPacks>
__global__ void __launch_bounds__(kThreads, BackwardBlocks(kPacks))
    Backward(LayerNormBackward t, LayerNormShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kTeams = kThreads / kTeam;
  __shared__ float warps[2][kWarps];
  const int thread = threadIdx.x % kTeam;
  const int packs = static_cast<int>(shape.width / kSize);
  const auto width = static_cast<float>(shape.width);
  float d_weight[kPacks][kSize] = {};
  float d_bias[kPacks][kSize] = {};
  for (int64_t row = int64_t{blockIdx.x} * kTeams + threadIdx.x / kTeam; row < shape.rows;
       row += int64_t{gridDim.x} * kTeams) {
    const T* x = static_cast<const T*>(t.x) + row * shape.width;
    const T* dy = static_cast<const T*>(t.dy) + row * shape.width;
    uint4 values[kPacks];
    uint4 gradients[kPacks];
    uint4 others[kPacks];
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (thread + i * kTeam >= packs) continue;
      values[i] = Load(x, thread + i * kTeam);
      gradients[i] = Load(dy, thread + i * kTeam);
    }
    if (t.d_sum != nullptr) {
      const T* d_sum = static_cast<const T*>(t.d_sum) + row * shape.width;
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (thread + i * kTeam < packs) others[i] = Load(d_sum, thread + i * kTeam);
      }
    }

    const RowStatistics statistics = t.statistics[row];
    float sum_g = 0;
    float sum_gx = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (thread + i * kTeam >= packs) continue;
      const Pack<T> value = Unpack<T>(values[i]);
      const Pack<T> gradient = Unpack<T>(gradients[i]);
      float weight[kSize];
      LoadWeights(t.weight, thread + i * kTeam, weight);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float normal = (ToFloat(value.values[j]) - statistics.mean) * statistics.rstd;
        const float d = ToFloat(gradient.values[j]);
        d_weight[i][j] += d * normal;
        d_bias[i][j] += d;
        sum_g += d * weight[j];
        sum_gx += d * weight[j] * normal;
      }
    }
    const float mean_g = TeamSum<kTeam>(sum_g, warps[0]) / width;
    const float mean_gx = TeamSum<kTeam>(sum_gx, warps[1]) / width;

    T* dx = static_cast<T*>(t.dx) + row * shape.width;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (thread + i * kTeam >= packs) continue;
      Pack<T> value = Unpack<T>(values[i]);
      const Pack<T> gradient = Unpack<T>(gradients[i]);
      const Pack<T> other = Unpack<T>(others[i]);
      float weight[kSize];
      LoadWeights(t.weight, thread + i * kTeam, weight);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float normal = (ToFloat(value.values[j]) - statistics.mean) * statistics.rstd;
        const float g = ToFloat(gradient.values[j]) * weight[j];
        float derivative = statistics.rstd * (g - mean_g - normal * mean_gx);
        if (t.d_sum != nullptr) derivative += ToFloat(other.values[j]);
        value.values[j] = FromFloat<T>(derivative);
      }
      Store(dx, thread + i * kTeam, value);
    }
  }

  if (t.partials == nullptr) return;
  float* partials = t.partials + int64_t{blockIdx.x} * 2 * shape.width;
  if constexpr (kTeams == 1) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (thread + i * kTeam >= packs) continue;
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const int64_t column = int64_t{thread + i * kTeam} * kSize + j;
        partials[column] = d_weight[i][j];
        partials[shape.width + column] = d_bias[i][j];
      }
    }
  } else {
    // Team by team, in their order.
    __shared__ float sums[2][kPacks * kTeam * kSize];
    for (int team = 0; team < kTeams; ++team) {
      if (threadIdx.x / kTeam == team) {
#pragma unroll
        for (int i = 0; i < kPacks; ++i) {
#pragma unroll
          for (int j = 0; j < kSize; ++j) {
            const int column = (thread + i * kTeam) * kSize + j;
            sums[0][column] = (team == 0 ? 0 : sums[0][column]) + d_weight[i][j];
            sums[1][column] = (team == 0 ? 0 : sums[1][column]) + d_bias[i][j];
          }
        }
      }
      __syncthreads();
    }
    for (int64_t column = threadIdx.x; column < shape.width; column += kThreads) {
      partials[column] = sums[0][column];
      partials[shape.width + column] = sums[1][column];
    }
  }
}

// dx for any width and address.
template <typename T>
__global__ void __launch_bounds__(kThreads) BackwardAny(LayerNormBackward t, LayerNormShape shape) {
  __shared__ float warps[2][kWarps];
  const auto width = static_cast<float>(shape.width);
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(t.x) + row * shape.width;
    const T* dy = static_cast<const T*>(t.dy) + row * shape.width;
    const RowStatistics statistics = t.statistics[row];
    float sum_g = 0;
    float sum_gx = 0;
    for (int64_t c = threadIdx.x; c < shape.width; c += kThreads) {
      const float g = ToFloat(dy[c]) * t.weight[c];
      sum_g += g;
      sum_gx += g * (ToFloat(x[c]) - statistics.mean) * statistics.rstd;
    }
    const float mean_g = TeamSum<kThreads>(sum_g, warps[0]) / width;
    const float mean_gx = TeamSum<kThreads>(sum_gx, warps[1]) / width;
    T* dx = static_cast<T*>(t.dx) + row * shape.width;
    for (int64_t c = threadIdx.x; c < shape.width; c += kThreads) {
      const float normal = (ToFloat(x[c]) - statistics.mean) * statistics.rstd;
      const float g = ToFloat(dy[c]) * t.weight[c];
      float derivative = statistics.rstd * (g - mean_g - normal * mean_gx);
      if (t.d_sum != nullptr) {
        derivative += ToFloat(static_cast<const T*>(t.d_sum)[row * shape.width + c]);
      }
      dx[c] = FromFloat<T>(derivative);
    }
  }
}

// Partial sums of d_weights for any width and address: a thread has a column, and each gridDim.y-th
// row.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    BackwardWeightsAny(LayerNormBackward t, LayerNormShape shape) {
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= shape.width) return;
  float d_weight = 0;
  float d_bias = 0;
  for (int64_t row = blockIdx.y; row < shape.rows; row += gridDim.y) {
    const RowStatistics statistics = t.statistics[row];
    const float x = ToFloat(static_cast<const T*>(t.x)[row * shape.width + column]);
    const float dy = ToFloat(static_cast<const T*>(t.dy)[row * shape.width + column]);
    d_weight += dy * (x - statistics.mean) * statistics.rstd;
    d_bias += dy;
  }
  float* partials = t.partials + int64_t{blockIdx.y} * 2 * shape.width;
  partials[column] = d_weight;
  partials[shape.width + column] = d_bias;
}

// As many blocks as have a row each for their teams, and as the GPU holds at once.
int64_t Blocks(int64_t rows, int teams, int64_t resident) {
  return std::min((rows + teams - 1) / teams, resident);
}

template <typename T, int kTeam, int kPacks>
void LaunchForward(const LayerNormForward& t, const LayerNormShape& shape, cudaStream_t stream) {
  const auto kernel = Forward<T, kTeam, kPacks>;
  int per_multiprocessor = 1;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, kThreads, 0);
  const int64_t blocks = Blocks(shape.rows, kThreads / kTeam,
                                int64_t{shape.multiprocessors} * std::max(per_multiprocessor, 1));
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(t, shape);
}

// -> rows of the partial sums.
template <typename T, int kTeam, int kPacks>
int64_t LaunchBackward(const LayerNormBackward& t, const LayerNormShape& shape,
                       cudaStream_t stream) {
  const int64_t blocks =
      Blocks(shape.rows, kThreads / kTeam, int64_t{shape.multiprocessors} * BackwardBlocks(kPacks));
  Backward<T, kTeam, kPacks><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(t, shape);
  return blocks;
}

// The threads that share a row, and the packs of it that each holds.
template <int kThreadCount, int kPackCount>
struct Team {
  static constexpr int kThreads = kThreadCount;
  static constexpr int kPacks = kPackCount;
};

// Calls launch with the smallest team for rows of so many packs.
template <typename Launch>
auto WithTeam(int64_t packs, const Launch& launch) {
  if (packs <= 32) return launch(Team<32, 1>());
  if (packs <= 64) return launch(Team<32, 2>());
  if (packs <= 96) return launch(Team<32, 3>());
  if (packs <= 128) return launch(Team<32, 4>());
  if (packs <= 256) return launch(Team<kThreads, 1>());
  if (packs <= 512) return launch(Team<kThreads, 2>());
  return launch(Team<kThreads, 4>());
}

// Packs of a row, or 0 where it is not made of packs that a team's registers hold.
template <typename T, typename... Pointers>
int64_t PacksOf(const LayerNormShape& shape, const Pointers*... pointers) {
  const int64_t packs = shape.width / Pack<T>::kSize;
  const bool fits = shape.width % Pack<T>::kSize == 0 && packs <= kMostPacks;
  return fits && (IsAligned(pointers) && ...) ? packs : 0;
}

template <typename T>
void ForwardOf(const LayerNormForward& t, const LayerNormShape& shape, cudaStream_t stream) {
  const int64_t packs = PacksOf<T>(shape, t.x, t.branch, t.weight, t.bias, t.sum, t.y);
  if (packs == 0) {
    const int64_t blocks = Blocks(shape.rows, 1, int64_t{shape.multiprocessors} * 8);
    ForwardAny<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(t, shape);
    return;
  }
  return WithTeam(packs, [&](auto team) {
    using Chosen = decltype(team);
    return LaunchForward<T, Chosen::kThreads, Chosen::kPacks>(t, shape, stream);
  });
}

template <typename T>
int64_t BackwardAnyOf(const LayerNormBackward& t, const LayerNormShape& shape,
                      cudaStream_t stream) {
  const int64_t blocks = Blocks(shape.rows, 1, int64_t{shape.multiprocessors} * 8);
  BackwardAny<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(t, shape);
  const int64_t slices = PartialRows(shape);
  if (t.partials == nullptr) return slices;
  const dim3 grid(static_cast<unsigned>((shape.width + kThreads - 1) / kThreads),
                  static_cast<unsigned>(slices));
  BackwardWeightsAny<T><<<grid, kThreads, 0, stream>>>(t, shape);
  return slices;
}

template <typename T>
int64_t BackwardOf(const LayerNormBackward& t, const LayerNormShape& shape, cudaStream_t stream) {
  const int64_t packs = PacksOf<T>(shape, t.x, t.dy, t.d_sum, t.weight, t.dx);
  if (packs == 0) return BackwardAnyOf<T>(t, shape, stream);
  return WithTeam(packs, [&](auto team) {
    using Chosen = decltype(team);
    return LaunchBackward<T, Chosen::kThreads, Chosen::kPacks>(t, shape, stream);
  });
}

}  // namespace

void LaunchLayerNorm(const LayerNormForward& tensors, FloatType type, const LayerNormShape& shape,
                     cudaStream_t stream) {
  if (shape.rows == 0) return;
  WithType(type, [&](auto zero) { ForwardOf<decltype(zero)>(tensors, shape, stream); });
}

void LaunchLayerNormBackward(const LayerNormBackward& tensors, FloatType type,
                             const LayerNormShape& shape, cudaStream_t stream) {
  int64_t partial_rows = 0;
  if (shape.rows > 0) {
    partial_rows = WithType(
        type, [&](auto zero) { return BackwardOf<decltype(zero)>(tensors, shape, stream); });
  }
  if (tensors.d_weights == nullptr) return;
  LaunchSumPartials(tensors.partials, tensors.d_weights, partial_rows, 2 * shape.width, stream);
}

}  // namespace lockstep::ops
