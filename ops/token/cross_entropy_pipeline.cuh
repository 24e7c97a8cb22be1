// Computes the loss and the gradient of long rows, on Hopper and later GPUs. Each row is read once and written once.
//
// There are as many thread blocks as fit on the GPU, and together they process all rows. In round i (from 0) a block
//   1. waits until its row i is in shared memory
//   2. for one pack after the other, writes the gradient of row i - 1, which is in registers, to global memory, loads
//      the pack of row i into these registers, and adds the exps of the pack's logits to the thread's sum
//   3. adds up the threads' sums. After the barrier of this step no thread needs row i in shared memory
//   4. starts the copy of row i + kRowsAhead into the same part of shared memory
// Loads from GPU memory and stores to GPU memory are therefore always in flight while the threads compute. An extra
// loop that finds the greatest logit of a row would cause a delay. The class Running makes such a loop unnecessary.
//
// A thread processes every blockDim.x-th pack of classes of each row. A pack that also contains padding is not
// processed as a pack: each of the pack's classes, which are fewer than kSize, belongs to one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/common/pack.cuh"
#include "ops/common/shared_address.cuh"
#include "ops/token/cross_entropy_kernel.h"
#include "ops/token/cross_entropy_row.cuh"

namespace lockstep::ops::cross_entropy {

// The number of rows that are being copied to a block's shared memory while the block computes another row in
// registers. If two rows are being copied, GPU memory is busy during all steps of a round.
constexpr int kRowsAhead = 2;
// The alignment of the rows' part of shared memory, in bytes.
constexpr int kLineBytes = 128;

// On Hopper and later GPUs a thread can start a copy of a whole row to shared memory. The copy needs no registers, and
// the thread does not wait for the copy.
#if __CUDA_ARCH__ >= 900
// Initialises a barrier. Each phase of the barrier has one arrival, which StartCopy() makes. The fence makes the
// barrier visible to the copy engine.
__device__ inline void StartBarrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SharedAddress(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Starts the copy of `bytes` bytes, fewer than 2^20. The barrier's phase ends when all bytes have arrived. `bytes` and
// the addresses must be multiples of 16.
__device__ inline void StartCopy(void* to, const void* from, unsigned bytes, uint64_t* barrier) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}

// Waits until the barrier's phase has ended. `parity` is the phase's number modulo 2.
__device__ inline void WaitForPhase(uint64_t* barrier, unsigned parity) {
  unsigned ended;
  do {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n"
        "}\n"
        : "=r"(ended)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  } while (ended == 0);
}

// The type of a pair of logits. One instruction processes a pair of 16-bit logits.
template <typename T>
struct PairOf {
  using Type = float2;
};
template <>
struct PairOf<__half> {
  using Type = __half2;
};
template <>
struct PairOf<__nv_bfloat16> {
  using Type = __nv_bfloat162;
};
template <typename T>
using Pair = typename PairOf<T>::Type;

__device__ inline float2 ToFloats(float2 pair) { return pair; }
__device__ inline float2 ToFloats(__half2 pair) { return __half22float2(pair); }
__device__ inline float2 ToFloats(__nv_bfloat162 pair) {
  unsigned word;
  memcpy(&word, &pair, sizeof(word));
  return BFloat16Pair(word);
}

template <typename T>
__device__ Pair<T> FromFloats(float2 values);
template <>
__device__ inline float2 FromFloats<float>(float2 values) {
  return values;
}
template <>
__device__ inline __half2 FromFloats<__half>(float2 values) {
  return __float22half2_rn(values);
}
template <>
__device__ inline __nv_bfloat162 FromFloats<__nv_bfloat16>(float2 values) {
  return __float22bfloat162_rn(values);
}

// Returns a pair: the greater of a.x and b.x, and the greater of a.y and b.y. If one of two compared values is NaN, the
// other value counts as the greater one.
template <typename Halves>
__device__ Halves Greater(Halves a, Halves b) {
  return __hmax2(a, b);
}
__device__ inline float2 Greater(float2 a, float2 b) { return {fmaxf(a.x, b.x), fmaxf(a.y, b.y)}; }

// Returns whether both values of `pair` are at most the values of `limit`. The result is false if a value is NaN.
template <typename Halves>
__device__ bool AreAtMost(Halves pair, Halves limit) {
  return __hble2(pair, limit);
}
__device__ inline bool AreAtMost(float2 pair, float2 limit) {
  return pair.x <= limit.x && pair.y <= limit.y;
}

// The values of a pack as pairs. Words() converts the pairs back to the words of the pack.
template <typename T>
struct Pairs {
  static constexpr int kCount = Pack<T>::kSize / 2;
  Pair<T> pairs[kCount];

  Pairs() = default;
  __device__ explicit Pairs(const uint4& words) { memcpy(pairs, &words, sizeof(words)); }
  __device__ uint4 Words() const {
    uint4 words;
    memcpy(&words, pairs, sizeof(words));
    return words;
  }
};

__device__ inline void Forget(uint4& words) {
  Forget(words.x);
  Forget(words.y);
  Forget(words.z);
  Forget(words.w);
}

// Computes a thread's Seen of a row in one loop over the thread's packs, without another loop that finds the greatest
// logit. exp(logit - base) does not overflow if the base is near the greatest logit. Seen::greatest therefore starts as
// the greatest logit of the first pack, and is raised only if a logit exceeds Seen::greatest by more than kSlack. An
// exp is therefore at most e^8, or e^16 if bfloat16 rounds the limit up.
template <typename T, bool kSmoothed>
class Running {
 public:
  __device__ void Add(const uint4& words) {
    const Pairs<T> pack(words);
    Pair<T> greatest = pack.pairs[0];
#pragma unroll
    for (int j = 1; j < Pairs<T>::kCount; ++j) greatest = Greater(greatest, pack.pairs[j]);
    if (!AreAtMost(greatest, limit_)) {
      const float2 two = ToFloats(greatest);
      Raise(fmaxf(two.x, two.y));
    }
    float2 exps{0, 0};
    float2 sums{0, 0};
#pragma unroll
    for (int j = 0; j < Pairs<T>::kCount; ++j) {
      const float2 two = ToFloats(pack.pairs[j]);
      exps.x += Exp(two.x - base_);
      exps.y += Exp(two.y - base_);
      sums.x += two.x;
      sums.y += two.y;
    }
    seen_.exp_sum += exps.x + exps.y;
    if (kSmoothed) seen_.sum += sums.x + sums.y;
  }

  __device__ void Add(float logit) {
    if (!(logit <= ToFloats(limit_).x)) Raise(logit);
    seen_.exp_sum += Exp(logit - base_);
    if (kSmoothed) seen_.sum += logit;
  }

  __device__ const Seen& seen() const { return seen_; }

 private:
  static constexpr float kSlack = 8;

  // Raises Seen::greatest to `logit`, and rescales the sum of exps. Raise() is also called if `logit` is NaN or
  // infinite. The sum of exps then becomes NaN when exp(logit - base) is added.
  __device__ void Raise(float logit) {
    const float greatest = fmaxf(seen_.greatest, logit);
    base_ = Base(greatest);
    seen_.exp_sum *= Exp(seen_.greatest - base_);
    seen_.greatest = greatest;
    limit_ = FromFloats<T>({greatest + kSlack, greatest + kSlack});
  }

  Seen seen_;
  float base_ = 0;  // Base(seen_.greatest)
  Pair<T> limit_ = FromFloats<T>({-INFINITY, -INFINITY});
};

template <typename T>
__device__ uint4 DerivativeOf(const uint4& words, const Derivative& derivative) {
  Pairs<T> pack(words);
#pragma unroll
  for (int j = 0; j < Pairs<T>::kCount; ++j) {
    const float2 two = ToFloats(pack.pairs[j]);
    pack.pairs[j] = FromFloats<T>({derivative(two.x), derivative(two.y)});
  }
  return pack.Words();
}
#endif

// Computes the loss and the gradient of the rows blockIdx.x, blockIdx.x + gridDim.x, and so on.
template <typename T, bool kSmoothed>
__global__ void __launch_bounds__(kMostThreads, 1)
    LossAndGradientPipelined(T* logits, const int64_t* target, const float* gradient, float* losses,
                             CrossEntropyShape shape) {
#if __CUDA_ARCH__ >= 900
  constexpr int kSize = Pack<T>::kSize;
  extern __shared__ __align__(kLineBytes) unsigned char memory[];
  __shared__ uint64_t barriers[kRowsAhead];
  const int rows = static_cast<int>(shape.rows);
  const int step = static_cast<int>(gridDim.x);
  const auto row_bytes = static_cast<unsigned>(shape.columns * sizeof(T));
  const auto start_copy = [&](int row, unsigned place) {
    if (row < rows) {
      StartCopy(memory + place * row_bytes, logits + row * shape.columns, row_bytes,
                &barriers[place]);
    }
  };
  int row = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) {
    for (int ahead = 0; ahead < kRowsAhead; ++ahead) {
      StartBarrier(&barriers[ahead]);
      start_copy(row + ahead * step, ahead);
    }
  }
  __syncthreads();

  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int classes = static_cast<int>(shape.classes);
  const int packs = classes / kSize;
  const int my_rest = packs * kSize + thread;
  const float scale = *gradient;

  // The thread's logits of the row that is in registers (`held` and `rest`), the logit of this row's target, and the
  // data for this row's gradient.
  uint4 held[kMostHeld];
  float rest = 0;
  float logit = 0;
  Target column(-1, shape);
  Derivative derivative({}, scale, column, shape);

  const auto write_rest = [&](T* x) {
    for (int c = my_rest; c < static_cast<int>(shape.columns); c += threads) {
      x[c] = FromFloat<T>(c < classes ? derivative(rest) : 0);
    }
    const bool is_mine =
        column.column < packs * kSize ? column.IsMine<kSize>() : column.column == my_rest;
    if (is_mine) WriteTarget(derivative, logit, x, column);
  };

  // There is one round more than the block has rows. The last round writes the last row and reads nothing.
  for (unsigned round = 0; row - step < rows; row += step, ++round) {
    const unsigned place = round % kRowsAhead;
    const T* from = reinterpret_cast<const T*>(memory + place * row_bytes);
    T* x = logits + (row - step) * shape.columns;
    const bool reads = row < rows;
    const bool writes = round > 0;
    int64_t next_target = -1;
    if (reads) {
      next_target = target[row];
      WaitForPhase(&barriers[place], round / kRowsAhead % 2);
    }
    Running<T, kSmoothed> running;
#pragma unroll
    for (int k = 0; k < kMostHeld; ++k) {
      const int pack = PackOf(thread, k);
      if (pack < packs) {
        const uint4 next = reinterpret_cast<const uint4*>(from)[pack];
        if (writes) reinterpret_cast<uint4*>(x)[pack] = DerivativeOf<T>(held[k], derivative);
        held[k] = next;
        running.Add(next);
        Forget(held[k]);
      }
    }
    if (writes) write_rest(x);
    if (!reads) break;

    column = Target(next_target, shape);
    logit = column.Logit(from);
    if (my_rest < classes) {
      rest = ToFloat(from[my_rest]);
      running.Add(rest);
    }
    const Seen seen = OfBlock<kSmoothed>(running.seen(), static_cast<int>(round % 2), [&] {
      if (thread == 0) start_copy(row + kRowsAhead * step, place);
    });
    if (thread == 0) {
      losses[row] = Loss(seen, {seen.greatest, logf(seen.exp_sum)}, column, logit, shape);
    }
    derivative = Derivative({seen.greatest, __logf(seen.exp_sum)}, scale, column, shape);
  }
#else
  __trap();
#endif
}

// Launches LossAndGradientPipelined. Returns false if the GPU cannot run this kernel for this shape.
template <typename T, bool kSmoothed>
bool LaunchPipelined(T* logits, const int64_t* target, const float* gradient, float* losses,
                     const CrossEntropyShape& shape, cudaStream_t stream) {
  const auto kernel = LossAndGradientPipelined<T, kSmoothed>;
  int device = 0;
  int capability = 0;
  int most_bytes = 0;
  int multiprocessors = 0;
  cudaFuncAttributes attributes{};
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaFuncGetAttributes(&attributes, kernel);
  // The kernel's static shared memory is not available for rows.
  most_bytes -= (static_cast<int>(attributes.sharedSizeBytes) / kLineBytes + 1) * kLineBytes;
  const int64_t bytes = kRowsAhead * shape.columns * static_cast<int64_t>(sizeof(T));
  if (capability < 9 || bytes > most_bytes) return false;

  // A thread gets about half as many packs as it can hold, so that a row of GPT-2's logits gives work to all threads of
  // a block.
  const unsigned threads = Threads(shape.columns / Pack<T>::kSize, kAtOnce, kMostThreads);
  int resident = 1;
  // The limit of dynamic shared memory is always set to the maximum, because another host thread may launch the kernel
  // for another shape at the same time.
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_bytes);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, static_cast<int>(threads),
                                                static_cast<size_t>(bytes));
  const int64_t blocks = std::min(shape.rows, int64_t{multiprocessors} * std::max(resident, 1));
  kernel<<<static_cast<unsigned>(blocks), threads, static_cast<size_t>(bytes), stream>>>(
      logits, target, gradient, losses, shape);
  return true;
}

}  // namespace lockstep::ops::cross_entropy
