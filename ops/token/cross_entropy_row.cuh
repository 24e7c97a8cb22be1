// Processes a row of logits in a block of threads. The kernels of cross_entropy.h share this code. The loss and the
// gradient follow from the greatest logit and the sum of exp(logit - greatest), which the threads of the block compute
// together.
#pragma once

#include <algorithm>
#include <cmath>

#include "base/ceil_divide.h"
#include "ops/common/pack.cuh"
#include "ops/common/warp_sum.cuh"
#include "ops/token/cross_entropy_kernel.h"

namespace lockstep::ops::cross_entropy {

// The number of threads of a warp, and the maximum number of threads of a block. A block processes a whole row: there
// are usually so many rows that one block for each row keeps the GPU busy.
constexpr int kWarpThreads = 32;
constexpr int kMostThreads = 1024;
// The number of loads of a thread that are in flight while the thread reads a row.
constexpr int kAtOnce = 4;
// The maximum number of packs of a row that a thread holds in registers. These packs take 32 registers, which is half
// of the registers that a thread has in a block of 1,024 threads.
constexpr int kMostHeld = 8;

// Makes the compiler compute the values that depend on x again at their next use. Otherwise the compiler would keep
// these values in registers.
__device__ inline void Forget(unsigned& x) { asm volatile("" : "+r"(x)); }

// The maximum and the sums over a part of a row's logits.
struct Seen {
  float greatest = -INFINITY;
  float exp_sum = 0;  // the sum of exp(logit - greatest)
  float sum = 0;      // the sum of the logits, if labels are smoothed
};

constexpr float kLog2OfE = 1.44269504f;

// Returns 2^x with one instruction. Results below 2^-126 become 0. Otherwise the relative error is that of __expf.
__device__ inline float Exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

__device__ inline float Exp(float x) { return Exp2(x * kLog2OfE); }

// Returns the value to subtract from a logit before exp: the greatest logit, or 0 if all logits are -inf, so that the
// exp of each logit is exp(-inf) = 0.
__device__ inline float Base(float greatest) { return greatest == -INFINITY ? 0 : greatest; }

// Returns the greatest x of the warp's lanes. x must not be NaN in any lane.
__device__ inline float GreatestOfWarp(float x) {
#if __CUDA_ARCH__ >= 900
  // Converts the bits of a float to an integer such that integers have the order of the floats, because one instruction
  // finds the greatest integer of a warp.
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

// Combines the Seen of all threads of the block, and returns the result to each thread. Calls after_barrier() after the
// barrier that this function contains. A kernel that calls this function several times must pass 0 and 1 in turn as
// `turn`, because some warps may still read the shared memory of the previous call.
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
  // Each warp combines the values of all warps, which saves another exchange through shared memory.
  Seen other;
  if (lane < blockDim.x / kWarpThreads) {
    other = {greatest[turn][lane], exp_sum[turn][lane], kSmoothed ? sum[turn][lane] : 0};
  }
  return OfWarp<kSmoothed>(other);
}

// Returns the index of the thread's pack k, where `first` is the thread's first pack.
__device__ inline int PackOf(int first, int k) { return first + k * static_cast<int>(blockDim.x); }

struct Target {
  static constexpr int kNoClass = -1;
  static constexpr int kIgnored = -2;
  int column;  // the target's column, kNoClass or kIgnored

  __device__ Target(int64_t target, const CrossEntropyShape& shape)
      : column(target >= 0 && target < shape.classes ? static_cast<int>(target)
               : target == kIgnoredTarget            ? kIgnored
                                                     : kNoClass) {}

  // Returns whether this thread writes the pack that contains the target's column.
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

// Computes the derivative of the loss with respect to logit c of a row x: gradient (softmax(x)[c] - label[c]), where
// label is the smoothed label. If the target is not a class, the derivatives of the row are NaN. If the target is
// ignored, the derivatives of the row are 0.
struct Derivative {
  float greatest;  // the greatest logit
  float rest;      // the log to base 2 of the sum of exp(logit - greatest)
  float scale;
  float spread;  // scale times the part of the smoothed label that each class gets
  float wanted;  // scale times the further part that the target gets

  __device__ Derivative(const LogSum& log_sum, float gradient, const Target& target,
                        const CrossEntropyShape& shape)
      : greatest(log_sum.greatest),
        rest(log_sum.rest * kLog2OfE),
        scale(target.column >= 0                  ? gradient
              : target.column == Target::kIgnored ? 0
                                                  : NAN),
        spread(scale * shape.label_smoothing / static_cast<float>(shape.classes)),
        wanted(scale * (1 - shape.label_smoothing)) {}

  // Returns the derivative for the logit of any class except the target.
  __device__ float operator()(float logit) const {
    const float softmax = Exp2(fmaf(logit - greatest, kLog2OfE, -rest));
    return fmaf(scale, softmax, -spread);
  }
};

// Writes the gradient of the target's logit. The thread that writes the target's pack must call this function after it
// has written the pack.
template <typename T>
__device__ void WriteTarget(const Derivative& derivative, float logit, T* x, const Target& target) {
  x[target.column] = FromFloat<T>(derivative(logit) - derivative.wanted);
}

// Returns a number of threads, in whole warps and at most `most`, with which a thread has about `each` of the `packs`
// packs.
inline unsigned Threads(int64_t packs, int64_t each, int64_t most) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(RoundUp(CeilDivide(packs, each), kWarpThreads), kWarpThreads, most));
}

}  // namespace lockstep::ops::cross_entropy
