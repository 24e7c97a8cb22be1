// A row of logits as a block of threads takes it: what the kernels of cross_entropy.h have in common. The loss and the
// gradient follow from the greatest logit and the sum of exp(logit - greatest), which the threads find between them.
#pragma once

#include <algorithm>
#include <cmath>

#include "base/ceil_divide.h"
#include "trainer/ops/common/pack.cuh"
#include "trainer/ops/common/warp_sum.cuh"
#include "trainer/ops/token/cross_entropy_kernel.h"

namespace lockstep::ops::cross_entropy {

// A row is a block's: there are always many rows.
constexpr int kWarpThreads = 32;
constexpr int kMostThreads = 1024;
// Loads of a thread in flight where a row is swept.
constexpr int kAtOnce = 4;
// Packs that a thread holds of a row in registers: 32 of them, half of what a block of 1,024 has.
constexpr int kMostHeld = 8;

// The compiler forgets what it has computed from x, which would otherwise take up registers.
__device__ inline void Forget(unsigned& x) { asm volatile("" : "+r"(x)); }

// Of some of a row's logits.
struct Seen {
  float greatest = -INFINITY;
  float exp_sum = 0;  // of exp(logit - greatest)
  float sum = 0;      // of the logits, where labels are smoothed
};

constexpr float kLog2OfE = 1.44269504f;

// 2^x in one instruction, which makes what is below 2^-126 0; otherwise as accurate as __expf.
__device__ inline float Exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

__device__ inline float Exp(float x) { return Exp2(x * kLog2OfE); }

// What to subtract before exp: logits that are all -inf have no finite greatest, and exp(-inf) = 0.
__device__ inline float Base(float greatest) { return greatest == -INFINITY ? 0 : greatest; }

// No lane's x is NaN.
__device__ inline float GreatestOfWarp(float x) {
#if __CUDA_ARCH__ >= 900
  // Integers that are ordered as the floats are: one instruction compares a warp's.
  const auto key = [](int bits) { return bits ^ (bits >> 31 & 0x7fffffff); };
  return __int_as_float(key(__reduce_max_sync(~0u, key(__float_as_int(x)))));
#else
  for (int offset = kWarpThreads / 2; offset > 0; offset /= 2) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
  }
  return x;
#endif
}

template <bool kSmoothed>
__device__ Seen OfWarp(const Seen& thread) {
  Seen seen = thread;
  seen.greatest = GreatestOfWarp(thread.greatest);
  seen.exp_sum *= Exp(thread.greatest - Base(seen.greatest));
  if constexpr (kSmoothed) {
    SumOverWarp(seen.exp_sum, seen.sum);
  } else {
    SumOverWarp(seen.exp_sum);
  }
  return seen;
}

struct Nothing {
  __device__ void operator()() const {}
};

// Of all threads of the block, to each of them, and after the barrier that this is calls
// after_barrier. The turn is 0 and 1 alternately where a kernel calls this again and again: some
// warps may still read what the last call has left.
template <bool kSmoothed = true, typename AfterBarrier = Nothing>
__device__ Seen OfBlock(const Seen& thread, int turn = 0, const AfterBarrier& after_barrier = {}) {
  __shared__ float greatest[2][kWarpThreads];
  __shared__ float exp_sum[2][kWarpThreads];
  __shared__ float sum[2][kWarpThreads];
  const unsigned warp = threadIdx.x / kWarpThreads;
  const unsigned lane = threadIdx.x % kWarpThreads;
  const Seen seen = OfWarp<kSmoothed>(thread);
  if (lane == 0) {
    greatest[turn][warp] = seen.greatest;
    exp_sum[turn][warp] = seen.exp_sum;
    if (kSmoothed) sum[turn][warp] = seen.sum;
  }
  __syncthreads();
  after_barrier();
  // Each warp adds up all warps' for itself, which saves the way back through shared memory.
  Seen other;
  if (lane < blockDim.x / kWarpThreads) {
    other = {greatest[turn][lane], exp_sum[turn][lane], kSmoothed ? sum[turn][lane] : 0};
  }
  return OfWarp<kSmoothed>(other);
}

// The thread's pack k, counted from `first`.
__device__ inline int PackOf(int first, int k) { return first + k * static_cast<int>(blockDim.x); }

struct Target {
  static constexpr int kNoClass = -1;
  static constexpr int kIgnored = -2;
  int column;  // or one of these

  __device__ Target(int64_t target, const CrossEntropyShape& shape)
      : column(target >= 0 && target < shape.classes ? static_cast<int>(target)
               : target == kIgnoredTarget            ? kIgnored
                                                     : kNoClass) {}

  // Whether this thread writes the pack with the target's column.
  template <int kSize>
  __device__ bool IsMine() const {
    return column >= 0 &&
           column / kSize % static_cast<int>(blockDim.x) == static_cast<int>(threadIdx.x);
  }

  template <typename T>
  __device__ float Logit(const T* x) const {
    return column >= 0 ? ToFloat(x[column]) : NAN;
  }
};

__device__ inline float Loss(const Seen& row, const LogSum& log_sum, const Target& target,
                             float target_logit, const CrossEntropyShape& shape) {
  if (target.column == Target::kIgnored) return 0;
  const float s = shape.label_smoothing;
  float loss = log_sum.rest - (1 - s) * (target_logit - log_sum.greatest);
  if (s > 0) loss -= s * (row.sum / static_cast<float>(shape.classes) - log_sum.greatest);
  return loss;
}

// gradient (softmax(x)[c] - wanted[c]); a row whose target is no class gets NaN, one whose is ignored 0.
struct Derivative {
  float greatest;  // logit
  float rest;      // of the log of the exps' sum, to base 2
  float scale;
  float spread;  // what each class is wanted with
  float wanted;  // what the target is wanted with besides

  __device__ Derivative(const LogSum& log_sum, float gradient, const Target& target,
                        const CrossEntropyShape& shape)
      : greatest(log_sum.greatest),
        rest(log_sum.rest * kLog2OfE),
        scale(target.column >= 0                  ? gradient
              : target.column == Target::kIgnored ? 0
                                                  : NAN),
        spread(scale * shape.label_smoothing / static_cast<float>(shape.classes)),
        wanted(scale * (1 - shape.label_smoothing)) {}

  // Of any class but the target.
  __device__ float operator()(float logit) const {
    const float softmax = Exp2(fmaf(logit - greatest, kLog2OfE, -rest));
    return fmaf(scale, softmax, -spread);
  }
};

// By the thread that has written the target's pack, after it.
template <typename T>
__device__ void WriteTarget(const Derivative& derivative, float logit, T* x, const Target& target) {
  x[target.column] = FromFloat<T>(derivative(logit) - derivative.wanted);
}

// Whole warps, so that a thread has about `each` packs.
inline unsigned Threads(int64_t packs, int64_t each, int64_t most) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(RoundUp(CeilDivide(packs, each), kWarpThreads), kWarpThreads, most));
}

}  // namespace lockstep::ops::cross_entropy
