#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <type_traits>

#include "base/ceil_divide.h"
#include "ops/common/floats.cuh"
#include "ops/common/pack.cuh"
#include "ops/common/partial_sums.cuh"
#include "ops/common/warp_sum.cuh"
#include "ops/norm/layer_norm_kernel.h"

namespace lockstep::ops {
namespace {

// A team of threads processes a row. In Forward a team is a warp, or, for long rows, a whole block. Each thread of the
// team holds kPacks packs of the row in registers: pack i of thread t is pack i * kTeam + t of the row. A grid has as
// many blocks as can be resident on the GPU, and each team processes every stride-th row.
//
// kCenters is true for LayerNorm. For RMSNorm the mean is the constant 0, so the compiler leaves out the arithmetic
// with the mean.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMostPacks = kThreads * 4;  // the maximum number of packs of a row

// Says whether NormTypes::wide and NormTypes::narrow differ. In this file T is the C++ type of `wide`, and U that of
// `narrow`.
template <typename T, typename U>
constexpr bool kIsMixed = !std::is_same_v<T, U>;

// Returns the sum of `value` over the team's threads to each thread of the team. A team of several warps uses the
// shared memory `warps`, whose two halves are used in turn. One barrier per call is therefore enough: a thread writes
// to a half in call n + 2 only after the barrier of call n + 1, and each thread reaches this barrier only after it has
// read the same half in call n.
template <int kTeam>
__device__ float TeamSum(float value, float (&warps)[2][kWarps], unsigned& turn) {
  SumOverWarp(value);
  if constexpr (kTeam > 32) {
    if (threadIdx.x % 32 == 0) warps[turn][threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
#pragma unroll
    for (int warp = 0; warp < kTeam / 32; ++warp) value += warps[turn][warp];
    turn ^= 1;
  }
  return value;
}

template <typename T, typename U, int kTeam, int kPacks, bool kCenters>
__global__ void __launch_bounds__(kThreads, 2) Forward(LayerNormForward t, RowsShape shape) {
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
      if constexpr (kCenters) LoadWeights(t.bias, thread + i * kTeam, bias[i]);
    }
  }
  unsigned turn = 0;
  for (int64_t row = int64_t{blockIdx.x} * kTeams + threadIdx.x / kTeam; row < shape.rows;
       row += int64_t{gridDim.x} * kTeams) {
    const T* x = static_cast<const T*>(t.x) + row * shape.width;
    uint4 values[kPacks];
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (thread + i * kTeam < packs) values[i] = Load(x, thread + i * kTeam);
    }
    if (t.branch != nullptr) {
      const U* branch = static_cast<const U*>(t.branch) + row * shape.width;
      T* sum = static_cast<T*>(t.sum) + row * shape.width;
      PackWords<U, kSize> others[kPacks];
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (thread + i * kTeam < packs) others[i] = LoadWords<U, kSize>(branch, thread + i * kTeam);
      }
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (thread + i * kTeam >= packs) continue;
        Pack<T> pack = Unpack<T>(values[i]);
        const Pack<U, kSize> other = Unpack<U>(others[i]);
        float branch_bias[kSize] = {};
        if (t.branch_bias != nullptr) LoadWeights(t.branch_bias, thread + i * kTeam, branch_bias);
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
          pack.values[j] =
              FromFloat<T>(ToFloat(pack.values[j]) + (ToFloat(other.values[j]) + branch_bias[j]));
        }
        values[i] = __builtin_bit_cast(uint4, pack);
        Store(sum, thread + i * kTeam, pack);
      }
    }

    float mean = 0;
    if constexpr (kCenters) {
      float total = 0;
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (thread + i * kTeam >= packs) continue;
        const Pack<T> pack = Unpack<T>(values[i]);
#pragma unroll
        for (int j = 0; j < kSize; ++j) total += ToFloat(pack.values[j]);
      }
      mean = TeamSum<kTeam>(total, warps, turn) / width;
    }
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
    const float rstd = rsqrtf(TeamSum<kTeam>(squares, warps, turn) / width + t.epsilon);

    U* y = static_cast<U*>(t.y) + row * shape.width;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (thread + i * kTeam >= packs) continue;
      Pack<T> pack = Unpack<T>(values[i]);
      Pack<U, kSize> rounded;
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        float value = (ToFloat(pack.values[j]) - mean) * rstd * weight[i][j];
        if constexpr (kCenters) value += bias[i][j];
        rounded.values[j] = FromFloat<U>(value);
        if constexpr (kIsMixed<T, U>) pack.values[j] = value;
      }
      Store(y, thread + i * kTeam, rounded);
      if constexpr (kIsMixed<T, U>) {
        if (t.y_wide != nullptr) {
          Store(static_cast<T*>(t.y_wide) + row * shape.width, thread + i * kTeam, pack);
        }
      }
    }
    if (thread == 0) t.statistics[row] = {mean, rstd};
  }
}

// Computes forward for any width and alignment. Reads the row again, from the cache, for each of the row's sums.
template <typename T, typename U, bool kCenters>
__global__ void __launch_bounds__(kThreads) ForwardAny(LayerNormForward t, RowsShape shape) {
  __shared__ float warps[2][kWarps];
  const auto width = static_cast<float>(shape.width);
  unsigned turn = 0;
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(t.x) + row * shape.width;
    if (t.branch != nullptr) {
      const U* branch = static_cast<const U*>(t.branch) + row * shape.width;
      T* sum = static_cast<T*>(t.sum) + row * shape.width;
      for (int64_t c = threadIdx.x; c < shape.width; c += kThreads) {
        const float branch_bias = t.branch_bias == nullptr ? 0 : t.branch_bias[c];
        sum[c] = FromFloat<T>(ToFloat(x[c]) + (ToFloat(branch[c]) + branch_bias));
      }
      x = sum;  // each thread reads only values that the same thread has written
    }
    float mean = 0;
    if constexpr (kCenters) {
      float total = 0;
      for (int64_t c = threadIdx.x; c < shape.width; c += kThreads) total += ToFloat(x[c]);
      mean = TeamSum<kThreads>(total, warps, turn) / width;
    }
    float squares = 0;
    for (int64_t c = threadIdx.x; c < shape.width; c += kThreads) {
      const float deviation = ToFloat(x[c]) - mean;
      squares += deviation * deviation;
    }
    const float rstd = rsqrtf(TeamSum<kThreads>(squares, warps, turn) / width + t.epsilon);
    U* y = static_cast<U*>(t.y) + row * shape.width;
    for (int64_t c = threadIdx.x; c < shape.width; c += kThreads) {
      float value = (ToFloat(x[c]) - mean) * rstd * t.weight[c];
      if constexpr (kCenters) value += t.bias[c];
      y[c] = FromFloat<U>(value);
      if constexpr (kIsMixed<T, U>) {
        if (t.y_wide != nullptr) static_cast<T*>(t.y_wide)[row * shape.width + c] = value;
      }
    }
    if (threadIdx.x == 0) t.statistics[row] = {mean, rstd};
  }
}

// In Backward a thread holds, in addition to its packs of a row, the sums over rows of the gradients of weight and
// bias, for the columns of these packs. A team therefore has at least as many threads as a row has packs, and each
// thread holds only one pack of the row. The thread's sums then take few registers, so many warps fit on a
// multiprocessor. Each thread holds two packs only if a row has more packs than a block has threads.
//
// While a team works on a row, the team's next rows are being copied to shared memory, so that loads are always in
// flight. A thread reads only values that this thread has copied, so the copies need no barrier.
template <int kPacks>
constexpr int kBackwardThreads = kPacks == 1 ? 384 : 512;  // the maximum size of a block
// The number of packs of each tensor that are being copied for a thread.
constexpr int kSlots = 2;
constexpr int kMostTeamWarps = 16;
// The maximum number of teams of a block, if a team has several warps.
constexpr int kMostTeams = 8;
static_assert(kMostPacks <= kBackwardThreads<2> * 2);
static_assert(kBackwardThreads<2> <= kMostTeamWarps * 32);
static_assert(kBackwardThreads<2> <= kMostTeams * 2 * 32);
// The maximum number of rows. With this limit, an int can hold the index of a row and the index of a row a few strides
// further.
constexpr int64_t kMostBackwardRows = int64_t{1} << 30;

// Shared memory for rows that are being copied for a block's teams, one row for each team.
template <typename T, typename U, int kPacks>
struct BackwardRows {
  static constexpr int kThreads = kBackwardThreads<kPacks>;

  uint4 x[kPacks][kThreads];
  PackWords<U, Pack<T>::kSize> dy[kPacks][kThreads];
  uint4 dy_wide[kIsMixed<T, U> ? kPacks : 1][kIsMixed<T, U> ? kThreads : 1];
  uint4 d_sum[kPacks][kThreads];
  RowStatistics statistics[kThreads];
};

// The sums of each warp of the teams, if a team has several warps. The places without a warp hold zeros. One load reads
// the sums of four warps.
struct WarpSums {
  float4 g[kMostTeams][kMostTeamWarps / 4];
  float4 gx[kMostTeams][kMostTeamWarps / 4];
};

template <typename T, typename U, int kPacks>
struct BackwardMemory {
  // The number of rows that are being copied for a team.
  static constexpr int kRows = kSlots / kPacks;
  BackwardRows<T, U, kPacks> rows[kRows];
  WarpSums warps[2];
};

// The division of the rows among a block's threads.
struct BackwardShape {
  int rows;
  int packs;       // the number of packs of a row
  float scale;     // 1 / width
  int team_warps;  // the number of warps of a team, which share a row
  int team_fours;  // team_warps / 4, rounded up
  int teams;       // the number of teams of a block
};

struct RowSums {
  float g;  // only for LayerNorm
  float gx;
};

__device__ float SumOf(const float4& four) { return (four.x + four.y) + (four.z + four.w); }

// Returns the sums over the team to each thread of the team. `place` is the index of the warp's sums in `all`, where
// each team has kMostTeamWarps places. The caller must pass two objects as `all` in turn, so that one barrier per call
// is enough, as in TeamSum().
template <bool kCenters>
__device__ RowSums TeamSums(RowSums sums, const BackwardShape& shape, int place, WarpSums& all) {
  if constexpr (kCenters) {
    SumOverWarp(sums.g, sums.gx);
  } else {
    SumOverWarp(sums.gx);
  }
  if (shape.team_warps == 1) return sums;
  if (threadIdx.x % 32 == 0) {
    if constexpr (kCenters) reinterpret_cast<float*>(all.g)[place] = sums.g;
    reinterpret_cast<float*>(all.gx)[place] = sums.gx;
  }
  const int team = place / kMostTeamWarps;
  // Each team has a barrier of its own, number team + 1, because __syncthreads() uses barrier 0.
  asm volatile("barrier.sync %0, %1;" ::"r"(team + 1), "r"(shape.team_warps * 32) : "memory");
  sums = {kCenters ? SumOf(all.g[team][0]) : 0, SumOf(all.gx[team][0])};
#pragma unroll 1
  for (int four = 1; four < shape.team_fours; ++four) {
    if constexpr (kCenters) sums.g += SumOf(all.g[team][four]);
    sums.gx += SumOf(all.gx[team][four]);
  }
  return sums;
}

// A thread's values of dy and dy_wide in one row. Operator [] returns dy + dy_wide for one pack.
template <typename T, typename U, int kPacks>
struct Gradients {
  static constexpr int kSize = Pack<T>::kSize;

  PackWords<U, kSize> narrow[kPacks];
  uint4 wide[kIsMixed<T, U> ? kPacks : 1];

  __device__ Floats<kSize> operator[](int i) const {
    const Pack<U, kSize> pack = Unpack<U>(narrow[i]);
    Floats<kSize> sums;
#pragma unroll
    for (int j = 0; j < kSize; ++j) sums.values[j] = ToFloat(pack.values[j]);
    if constexpr (kIsMixed<T, U>) {
      const Pack<T> more = Unpack<T>(wide[i]);
#pragma unroll
      for (int j = 0; j < kSize; ++j) sums.values[j] += more.values[j];
    }
    return sums;
  }
};

// Computes dx, and partial sums of the gradients of weights and biases. kBranchBias says whether the gradient of the
// branch's bias is wanted.
template <typename T, typename U, int kPacks, bool kCenters, bool kBranchBias>
__global__ void __launch_bounds__(kBackwardThreads<kPacks>, 2 / kPacks)
    Backward(LayerNormBackward t, BackwardShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  using Narrow = PackWords<U, kSize>;
  using Memory = BackwardMemory<T, U, kPacks>;
  extern __shared__ __align__(16) unsigned char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  const int self = static_cast<int>(threadIdx.x);
  const int team_threads = shape.team_warps * 32;
  const int team = self / team_threads;
  const int thread = self % team_threads;
  const int place = team * kMostTeamWarps + thread / 32;
  const int packs = shape.packs;
  // Neighbouring rows belong to different blocks, so the blocks' numbers of rows differ by one at most.
  const int first = static_cast<int>(blockIdx.x + gridDim.x * team);
  const int stride = static_cast<int>(gridDim.x) * shape.teams;

  const auto start_copy = [&](int row, BackwardRows<T, U, kPacks>& to) {
    if (row < shape.rows) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        const int pack = thread + i * team_threads;
        if (pack >= packs) continue;
        const int64_t from = int64_t{row} * packs + pack;
        __pipeline_memcpy_async(&to.x[i][self], static_cast<const uint4*>(t.x) + from,
                                sizeof(uint4));
        if (!kIsMixed<T, U> || t.dy != nullptr) {
          __pipeline_memcpy_async(&to.dy[i][self], static_cast<const Narrow*>(t.dy) + from,
                                  sizeof(Narrow));
        }
        if constexpr (kIsMixed<T, U>) {
          if (t.dy_wide != nullptr) {
            __pipeline_memcpy_async(&to.dy_wide[i][self],
                                    static_cast<const uint4*>(t.dy_wide) + from, sizeof(uint4));
          }
        }
        if (t.d_sum != nullptr) {
          __pipeline_memcpy_async(&to.d_sum[i][self], static_cast<const uint4*>(t.d_sum) + from,
                                  sizeof(uint4));
        }
      }
      __pipeline_memcpy_async(&to.statistics[self], t.statistics + row, sizeof(RowStatistics));
    }
    __pipeline_commit();
  };
#pragma unroll
  for (int i = 0; i < Memory::kRows; ++i) start_copy(first + i * stride, memory.rows[i]);
  constexpr int kFours = sizeof(memory.warps) / sizeof(float4);
  for (int i = self; i < kFours; i += static_cast<int>(blockDim.x)) {
    reinterpret_cast<float4*>(memory.warps)[i] = {};
  }
  __syncthreads();

  float weight[kPacks][kSize];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int pack = thread + i * team_threads;
    if (pack < packs) LoadWeights(t.weight, pack, weight[i]);
  }
  float d_weight[kPacks][kSize] = {};
  float d_bias[kPacks][kSize] = {};
  float d_branch_bias[kPacks][kSize] = {};
  // All teams of a block run the same number of rounds, and a team may have no row in the last round. With different
  // numbers of rounds, some teams would leave the loop while others wait at barriers in the loop, which
  // compute-sanitizer's racecheck reports as races.
  const unsigned rounds = CeilDivide<int64_t>(shape.rows - static_cast<int>(blockIdx.x), stride);
  for (unsigned round = 0; round < rounds; ++round) {
    const int row = first + static_cast<int>(round) * stride;
    const int own_packs = row < shape.rows ? packs : 0;
    // Each round starts one group of copies, even an empty one after the last row. The oldest of kRows groups is
    // therefore always that of this round's row.
    BackwardRows<T, U, kPacks>& rows = memory.rows[round % Memory::kRows];
    __pipeline_wait_prior(Memory::kRows - 1);
    RowStatistics statistics = rows.statistics[self];
    if constexpr (!kCenters) statistics.mean = 0;
    uint4 values[kPacks];
    Gradients<T, U, kPacks> gradients = {};
    uint4 others[kPacks] = {};
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      values[i] = rows.x[i][self];
      if (!kIsMixed<T, U> || t.dy != nullptr) gradients.narrow[i] = rows.dy[i][self];
      if constexpr (kIsMixed<T, U>) {
        if (t.dy_wide != nullptr) gradients.wide[i] = rows.dy_wide[i][self];
      }
      if (t.d_sum != nullptr) others[i] = rows.d_sum[i][self];
    }
    start_copy(row + Memory::kRows * stride, rows);

    RowSums sums = {};
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (thread + i * team_threads >= own_packs) continue;
      const Pack<T> value = Unpack<T>(values[i]);
      const Floats<kSize> gradient = gradients[i];
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float normal = (ToFloat(value.values[j]) - statistics.mean) * statistics.rstd;
        const float d = gradient.values[j];
        d_weight[i][j] += d * normal;
        d_bias[i][j] += d;
        sums.g += d * weight[i][j];
        sums.gx += d * weight[i][j] * normal;
      }
    }
    sums = TeamSums<kCenters>(sums, shape, place, memory.warps[round % 2]);
    const float mean_g = kCenters ? sums.g * shape.scale : 0;
    const float mean_gx = sums.gx * shape.scale;

#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (thread + i * team_threads >= own_packs) continue;
      Pack<T> value = Unpack<T>(values[i]);
      const Floats<kSize> gradient = gradients[i];
      const Pack<T> other = Unpack<T>(others[i]);
      Pack<U, kSize> rounded;
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float normal = (ToFloat(value.values[j]) - statistics.mean) * statistics.rstd;
        const float g = gradient.values[j] * weight[i][j];
        const float derivative =
            statistics.rstd * (g - mean_g - normal * mean_gx) + ToFloat(other.values[j]);
        if constexpr (kBranchBias) d_branch_bias[i][j] += derivative;
        value.values[j] = FromFloat<T>(derivative);
        if constexpr (kIsMixed<T, U>) rounded.values[j] = FromFloat<U>(derivative);
      }
      const int64_t to = int64_t{row} * packs + thread + i * team_threads;
      Store(t.dx, to, value);
      if constexpr (kIsMixed<T, U>) {
        if (t.d_branch != nullptr) Store(t.d_branch, to, rounded);
      }
    }
  }

  if (t.partials == nullptr) return;
  constexpr int kParts = LayerNormBackward::kParts;
  constexpr int kUsed = kBranchBias ? kParts : kParts - 1;
  const int width = packs * kSize;
  float* partials = t.partials + int64_t{blockIdx.x} * kParts * width;
  // The sums of the teams, [teams, columns], are added up for one part at a time, in the shared memory of the rows.
  // After this wait no copies to this memory are in flight.
  __pipeline_wait_prior(0);
  auto* part_sums = reinterpret_cast<float*>(bytes);
  const int columns = team_threads * kPacks * kSize;
  static_assert(sizeof(float[kBackwardThreads<kPacks>][kPacks][kSize]) <= sizeof(Memory));
#pragma unroll
  for (int part = 0; part < kUsed; ++part) {
    if (part == 1 && !kCenters) continue;  // RMSNorm has no bias
    const auto& held = part == 0 ? d_weight : part == 1 ? d_bias : d_branch_bias;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int column = (thread + i * team_threads) * kSize;
#pragma unroll
      for (int j = 0; j < kSize; ++j) part_sums[team * columns + column + j] = held[i][j];
    }
    __syncthreads();
    for (int column = self; column < width; column += static_cast<int>(blockDim.x)) {
      float sum = 0;
#pragma unroll 4
      for (int other = 0; other < shape.teams; ++other) sum += part_sums[other * columns + column];
      partials[part * width + column] = sum;
    }
  }
}

// Returns the gradient of the value of y at index `place`: dy + dy_wide.
template <typename T, typename U>
__device__ float GradientAt(const LayerNormBackward& t, int64_t place) {
  if constexpr (kIsMixed<T, U>) {
    const float narrow = t.dy == nullptr ? 0 : ToFloat(static_cast<const U*>(t.dy)[place]);
    return t.dy_wide == nullptr ? narrow : narrow + static_cast<const T*>(t.dy_wide)[place];
  } else {
    return ToFloat(static_cast<const T*>(t.dy)[place]);
  }
}

// Computes dx for any width and alignment.
template <typename T, typename U, bool kCenters>
__global__ void __launch_bounds__(kThreads) BackwardAny(LayerNormBackward t, RowsShape shape) {
  __shared__ float warps[2][kWarps];
  const auto width = static_cast<float>(shape.width);
  unsigned turn = 0;
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(t.x) + row * shape.width;
    RowStatistics statistics = t.statistics[row];
    if constexpr (!kCenters) statistics.mean = 0;
    float sum_g = 0;
    float sum_gx = 0;
    for (int64_t c = threadIdx.x; c < shape.width; c += kThreads) {
      const float g = GradientAt<T, U>(t, row * shape.width + c) * t.weight[c];
      sum_g += g;
      sum_gx += g * (ToFloat(x[c]) - statistics.mean) * statistics.rstd;
    }
    const float mean_g = kCenters ? TeamSum<kThreads>(sum_g, warps, turn) / width : 0;
    const float mean_gx = TeamSum<kThreads>(sum_gx, warps, turn) / width;
    T* dx = static_cast<T*>(t.dx) + row * shape.width;
    for (int64_t c = threadIdx.x; c < shape.width; c += kThreads) {
      const float normal = (ToFloat(x[c]) - statistics.mean) * statistics.rstd;
      const float g = GradientAt<T, U>(t, row * shape.width + c) * t.weight[c];
      float derivative = statistics.rstd * (g - mean_g - normal * mean_gx);
      if (t.d_sum != nullptr) {
        derivative += ToFloat(static_cast<const T*>(t.d_sum)[row * shape.width + c]);
      }
      dx[c] = FromFloat<T>(derivative);
      if constexpr (kIsMixed<T, U>) {
        if (t.d_branch != nullptr) {
          static_cast<U*>(t.d_branch)[row * shape.width + c] = FromFloat<U>(derivative);
        }
      }
    }
  }
}

// Computes the partial sums for any width and alignment, after BackwardAny. A thread sums one column over every
// gridDim.y-th row.
template <typename T, typename U>
__global__ void __launch_bounds__(kThreads)
    BackwardWeightsAny(LayerNormBackward t, RowsShape shape) {
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= shape.width) return;
  float d_weight = 0;
  float d_bias = 0;
  float d_branch_bias = 0;
  for (int64_t row = blockIdx.y; row < shape.rows; row += gridDim.y) {
    const RowStatistics statistics = t.statistics[row];
    const int64_t place = row * shape.width + column;
    const float x = ToFloat(static_cast<const T*>(t.x)[place]);
    const float dy = GradientAt<T, U>(t, place);
    d_weight += dy * (x - statistics.mean) * statistics.rstd;
    d_bias += dy;
    d_branch_bias += ToFloat(static_cast<const T*>(t.dx)[place]);
  }
  float* partials = t.partials + int64_t{blockIdx.y} * LayerNormBackward::kParts * shape.width;
  partials[column] = d_weight;
  partials[shape.width + column] = d_bias;
  partials[2 * shape.width + column] = d_branch_bias;
}

// Returns the number of blocks: the number with which each team has one row, or `resident`, the number that can be
// resident on the GPU, whichever is smaller.
int64_t Blocks(int64_t rows, int teams, int64_t resident) {
  return std::min(CeilDivide(rows, teams), resident);
}

template <typename T, typename U, int kTeam, int kPacks, bool kCenters>
void LaunchForward(const LayerNormForward& t, const RowsShape& shape, cudaStream_t stream) {
  const auto kernel = Forward<T, U, kTeam, kPacks, kCenters>;
  int per_multiprocessor = 1;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, kThreads, 0);
  const int64_t blocks = Blocks(shape.rows, kThreads / kTeam,
                                int64_t{shape.multiprocessors} * std::max(per_multiprocessor, 1));
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(t, shape);
}

// Launches Backward, and returns the number of rows of partial sums that it writes.
template <typename T, typename U, int kPacks, bool kCenters, bool kBranchBias>
int64_t LaunchBackward(const LayerNormBackward& t, const RowsShape& shape, int64_t packs,
                       cudaStream_t stream) {
  const auto kernel = Backward<T, U, kPacks, kCenters, kBranchBias>;
  constexpr int kBytes = sizeof(BackwardMemory<T, U, kPacks>);
  constexpr int kWarpPacks = 32 * kPacks;
  const int team_warps = static_cast<int>(CeilDivide(packs, kWarpPacks));
  const BackwardShape layout = {.rows = static_cast<int>(shape.rows),
                                .packs = static_cast<int>(packs),
                                .scale = 1 / static_cast<float>(shape.width),
                                .team_warps = team_warps,
                                .team_fours = CeilDivide(team_warps, 4),
                                .teams = kBackwardThreads<kPacks> / 32 / team_warps};
  const int threads = layout.teams * team_warps * 32;
  int per_multiprocessor = 1;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, threads, kBytes);
  const int64_t blocks =
      Blocks(shape.rows, layout.teams,
             int64_t{shape.multiprocessors} *
                 std::clamp(per_multiprocessor, 1, kLayerNormBlocksPerMultiprocessor));
  kernel<<<static_cast<unsigned>(blocks), threads, kBytes, stream>>>(t, layout);
  return blocks;
}

// A team as a type: the number of threads that share a row, and the number of packs of the row that each thread holds.
template <int kThreadCount, int kPackCount>
struct Team {
  static constexpr int kThreads = kThreadCount;
  static constexpr int kPacks = kPackCount;
};

// Calls launch() with the smallest Team that holds rows of `packs` packs.
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

// Returns the number of packs of a row. The result is 0 if the row does not consist of whole, aligned packs, or has
// more packs than the registers of a team hold.
template <typename T, typename... Pointers>
int64_t PacksOf(const RowsShape& shape, const Pointers*... pointers) {
  const int64_t packs = shape.width / Pack<T>::kSize;
  const bool fits = shape.width % Pack<T>::kSize == 0 && packs <= kMostPacks;
  return fits && (IsAligned(pointers) && ...) ? packs : 0;
}

template <typename T, typename U, bool kCenters>
void ForwardOf(const LayerNormForward& t, const RowsShape& shape, cudaStream_t stream) {
  const int64_t packs =
      PacksOf<T>(shape, t.x, t.branch, t.branch_bias, t.weight, t.bias, t.sum, t.y, t.y_wide);
  if (packs == 0) {
    const int64_t blocks = Blocks(shape.rows, 1, int64_t{shape.multiprocessors} * 8);
    ForwardAny<T, U, kCenters><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(t, shape);
    return;
  }
  return WithTeam(packs, [&](auto team) {
    using Chosen = decltype(team);
    return LaunchForward<T, U, Chosen::kThreads, Chosen::kPacks, kCenters>(t, shape, stream);
  });
}

template <typename T, typename U, bool kCenters>
int64_t BackwardAnyOf(const LayerNormBackward& t, const RowsShape& shape, cudaStream_t stream) {
  const int64_t blocks = Blocks(shape.rows, 1, int64_t{shape.multiprocessors} * 8);
  BackwardAny<T, U, kCenters><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(t, shape);
  const int64_t slices = LayerNormPartialRows(shape);
  if (t.partials == nullptr) return slices;
  const dim3 grid(static_cast<unsigned>(CeilDivide(shape.width, kThreads)),
                  static_cast<unsigned>(slices));
  BackwardWeightsAny<T, U><<<grid, kThreads, 0, stream>>>(t, shape);
  return slices;
}

template <typename T, typename U, bool kCenters>
int64_t BackwardOf(const LayerNormBackward& t, const RowsShape& shape, cudaStream_t stream) {
  const int64_t packs =
      PacksOf<T>(shape, t.x, t.dy, t.dy_wide, t.d_sum, t.weight, t.dx, t.d_branch);
  if (packs == 0 || shape.rows > kMostBackwardRows) {
    return BackwardAnyOf<T, U, kCenters>(t, shape, stream);
  }
  const bool branch_bias = t.d_branch_bias.sums != nullptr;
  if (packs <= kBackwardThreads<1>) {
    return branch_bias ? LaunchBackward<T, U, 1, kCenters, true>(t, shape, packs, stream)
                       : LaunchBackward<T, U, 1, kCenters, false>(t, shape, packs, stream);
  }
  return branch_bias ? LaunchBackward<T, U, 2, kCenters, true>(t, shape, packs, stream)
                     : LaunchBackward<T, U, 2, kCenters, false>(t, shape, packs, stream);
}

// Calls launch() with values of the C++ types of types.wide and types.narrow.
template <typename Launch>
auto WithTypes(const NormTypes& types, const Launch& launch) {
  return WithType(types.narrow, [&](auto narrow) {
    return types.wide == types.narrow ? launch(narrow, narrow) : launch(float(), narrow);
  });
}

}  // namespace

void LaunchLayerNorm(const LayerNormForward& tensors, bool centers, const NormTypes& types,
                     const RowsShape& shape, cudaStream_t stream) {
  if (shape.rows == 0) return;
  WithTypes(types, [&](auto wide, auto narrow) {
    using T = decltype(wide);
    using U = decltype(narrow);
    return centers ? ForwardOf<T, U, true>(tensors, shape, stream)
                   : ForwardOf<T, U, false>(tensors, shape, stream);
  });
}

void LaunchLayerNormBackward(const LayerNormBackward& tensors, bool centers, const NormTypes& types,
                             const RowsShape& shape, cudaStream_t stream) {
  int64_t partial_rows = 0;
  if (shape.rows > 0) {
    partial_rows = WithTypes(types, [&](auto wide, auto narrow) {
      using T = decltype(wide);
      using U = decltype(narrow);
      return centers ? BackwardOf<T, U, true>(tensors, shape, stream)
                     : BackwardOf<T, U, false>(tensors, shape, stream);
    });
  }
  // If there are no rows, the sums are zeros, and there is no scratch memory.
  LaunchSumPartials(tensors.partials, {tensors.d_weight, tensors.d_bias, tensors.d_branch_bias},
                    partial_rows, shape.width, stream);
}

}  // namespace lockstep::ops
