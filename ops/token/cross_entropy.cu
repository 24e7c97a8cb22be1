// The kernels that compute the loss, the gradient, or both. cross_entropy_pipeline.cuh has another kernel that computes
// both for long rows, on GPUs that can run it.
#include <cmath>
#include <cstring>

#include "base/ceil_divide.h"
#include "ops/common/pack.cuh"
#include "ops/token/cross_entropy_kernel.h"
#include "ops/token/cross_entropy_pipeline.cuh"
#include "ops/token/cross_entropy_row.cuh"

namespace lockstep::ops {
namespace {

using namespace cross_entropy;

// The maximum number of threads of a block in the kernels that compute only the loss or only the gradient, and in the
// kernels for rows of few columns. The blocks are small, so that some blocks load while others wait at a barrier.
constexpr int kSweepThreads = 256;
// The size of the shortest rows that the kernel of cross_entropy_pipeline.cuh processes. This kernel copies rows ahead.
// With shorter rows there is no need to copy ahead: a multiprocessor has many blocks, some of which load while others
// compute.
constexpr int64_t kLongRowBytes = 16 << 10;

// Returns the number of columns in [column, end).
__device__ unsigned Before(int column, int end) {
  unsigned count = static_cast<unsigned>(max(end - column, 0));
  Forget(count);
  return count;
}

// A pack that stays in registers as the 32-bit words in which it was loaded. For 16-bit values this takes half as many
// registers as unpacked values.
template <typename T, int kSize>
class Held {
 public:
  __device__ Pack<T, kSize> Values() const {
    Pack<T, kSize> pack;
    memcpy(&pack, words_, sizeof(pack));
    return pack;
  }
  __device__ void Set(Pack<T, kSize> pack) {
    memcpy(words_, &pack, sizeof(pack));
    Forget();
  }
  // Makes the compiler unpack the values again at the next use, instead of keeping the unpacked values in registers.
  __device__ void Forget() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) cross_entropy::Forget(words_[i]);
  }

 private:
  static constexpr int kWords = CeilDivide(kSize * sizeof(T), 4);
  alignas(16) unsigned words_[kWords];
};

// Loads the packs first, first + blockDim.x, ... of row x that contain classes. Sets the padding in these packs to
// -inf.
template <typename T, int kSize, int kHeld>
__device__ void Load(const T* x, int first, const CrossEntropyShape& shape,
                     Held<T, kSize> (&held)[kHeld]) {
  const int classes = static_cast<int>(shape.classes);
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int pack = PackOf(first, k);
    if (pack * kSize < classes) held[k].Set(reinterpret_cast<const Pack<T, kSize>*>(x)[pack]);
  }
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int column = PackOf(first, k) * kSize;
    if (column < classes && column + kSize > classes) {
      const unsigned count = Before(column, classes);
      Pack<T, kSize> pack = held[k].Values();
#pragma unroll
      for (unsigned j = 0; j < kSize; ++j) {
        if (j >= count) pack.values[j] = FromFloat<T>(-INFINITY);
      }
      held[k].Set(pack);
    }
  }
}

template <typename T, int kSize, int kHeld>
__device__ void Add(Held<T, kSize> (&held)[kHeld], int first, const CrossEntropyShape& shape,
                    Seen& seen) {
  const int classes = static_cast<int>(shape.classes);
  // This loop finds the greatest logit of all packs, so that exp_sum is rescaled only once for all packs.
  float greatest = seen.greatest;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    if (PackOf(first, k) * kSize < classes) {
      held[k].Forget();
      const Pack<T, kSize> pack = held[k].Values();
#pragma unroll
      for (int j = 0; j < kSize; ++j) greatest = fmaxf(greatest, ToFloat(pack.values[j]));
    }
  }
  const float base = Base(greatest);
  seen.exp_sum *= Exp(seen.greatest - base);
  seen.greatest = greatest;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int column = PackOf(first, k) * kSize;
    if (column < classes) {
      held[k].Forget();
      const Pack<T, kSize> pack = held[k].Values();
#pragma unroll
      for (int j = 0; j < kSize; ++j) seen.exp_sum += Exp(ToFloat(pack.values[j]) - base);
      if (shape.label_smoothing > 0) {
        const unsigned count = Before(column, classes);
#pragma unroll
        for (unsigned j = 0; j < kSize; ++j) {
          if (j < count) seen.sum += ToFloat(pack.values[j]);
        }
      }
    }
  }
}

// Returns the block's Seen of row x, which the block reads once.
template <typename T, int kSize>
__device__ Seen Sweep(const T* x, const CrossEntropyShape& shape) {
  const int packs = CeilDivide(static_cast<int>(shape.classes), kSize);
  const int step = static_cast<int>(blockDim.x) * kAtOnce;
  Seen seen;
  for (int first = static_cast<int>(threadIdx.x); first < packs; first += step) {
    Held<T, kSize> held[kAtOnce];
    Load(x, first, shape, held);
    Add(held, first, shape, seen);
  }
  return OfBlock(seen);
}

// Overwrites the logits that Load() has read with their gradients. The caller then calls WriteTarget(), which corrects
// the target's gradient.
template <typename T, int kSize, int kHeld>
__device__ void Write(Held<T, kSize> (&held)[kHeld], const Derivative& derivative, T* x, int first,
                      const CrossEntropyShape& shape) {
  const int classes = static_cast<int>(shape.classes);
  const int columns = static_cast<int>(shape.columns);
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int pack = PackOf(first, k);
    const int column = pack * kSize;
    if (column < columns) {
      held[k].Forget();
      Pack<T, kSize> values = held[k].Values();
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        values.values[j] = FromFloat<T>(derivative(ToFloat(values.values[j])));
      }
      if (column + kSize > classes) {
        const unsigned count = Before(column, classes);
#pragma unroll
        for (unsigned j = 0; j < kSize; ++j) {
          if (j >= count) values.values[j] = FromFloat<T>(0);
        }
      }
      reinterpret_cast<Pack<T, kSize>*>(x)[pack] = values;
    }
  }
}

template <typename T, int kSize>
__device__ void SweepGradient(const Derivative& derivative, T* x, const CrossEntropyShape& shape) {
  const int packs = static_cast<int>(shape.columns) / kSize;
  const int step = static_cast<int>(blockDim.x) * kAtOnce;
  // The sweep begins at the end of the row, which the sweep before has left in the cache.
  for (int begin = (packs - 1) / step * step; begin >= 0; begin -= step) {
    const int first = begin + static_cast<int>(threadIdx.x);
    Held<T, kSize> held[kAtOnce];
    Load(x, first, shape, held);
    Write(held, derivative, x, first, shape);
  }
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kSweepThreads)
    Forward(const T* logits, const int64_t* target, float* losses, LogSum* log_sums,
            CrossEntropyShape shape) {
  const int64_t row = blockIdx.x;
  const T* x = logits + row * shape.columns;
  const Seen seen = Sweep<T, kSize>(x, shape);
  if (threadIdx.x != 0) return;
  const LogSum log_sum{seen.greatest, logf(seen.exp_sum)};
  log_sums[row] = log_sum;
  const Target column(target[row], shape);
  losses[row] = Loss(seen, log_sum, column, column.Logit(x), shape);
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kSweepThreads)
    Backward(T* logits, const int64_t* target, const LogSum* log_sums, const float* gradient,
             CrossEntropyShape shape) {
  const int64_t row = blockIdx.x;
  T* x = logits + row * shape.columns;
  const Target column(target[row], shape);
  const Derivative derivative(log_sums[row], *gradient, column, shape);
  // The thread that will overwrite the target's logit must read this logit before the sweep overwrites it.
  const bool is_mine = column.IsMine<kSize>();
  const float logit = is_mine ? column.Logit(x) : 0;
  SweepGradient<T, kSize>(derivative, x, shape);
  if (is_mine) WriteTarget(derivative, logit, x, column);
}

// Computes the loss and the gradient of one row in each block, and reads the row only once. A row has at most kHeld
// packs for each thread.
template <typename T, int kHeld>
__global__ void __launch_bounds__(kMostThreads, 1)
    LossAndGradient(T* logits, const int64_t* target, const float* gradient, float* losses,
                    CrossEntropyShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  T* x = logits + row * shape.columns;
  const Target column(target[row], shape);
  const float scale = *gradient;
  Held<T, kSize> held[kHeld];
  Load(x, thread, shape, held);
  Seen seen;
  Add(held, thread, shape, seen);
  // The target's logit is read before any thread writes, because OfBlock() contains a barrier.
  const float logit = column.Logit(x);
  seen = OfBlock(seen);
  const LogSum log_sum{seen.greatest, logf(seen.exp_sum)};
  if (thread == 0) losses[row] = Loss(seen, log_sum, column, logit, shape);
  const Derivative derivative(log_sum, scale, column, shape);
  Write(held, derivative, x, thread, shape);
  if (column.IsMine<kSize>()) WriteTarget(derivative, logit, x, column);
}

// Computes the loss and the gradient of a row of any size, which is read in two sweeps. The blocks are large, so that
// few rows are being processed at a time, and the second sweep still finds its row in the L2 cache.
template <typename T, int kSize>
__global__ void __launch_bounds__(kMostThreads, 1)
    LossAndGradientInTwo(T* logits, const int64_t* target, const float* gradient, float* losses,
                         CrossEntropyShape shape) {
  const int64_t row = blockIdx.x;
  T* x = logits + row * shape.columns;
  // The target's logit is read before any thread writes, because the sweep ends with a barrier.
  const Target column(target[row], shape);
  const float logit = column.Logit(x);
  const Seen seen = Sweep<T, kSize>(x, shape);
  const LogSum log_sum{seen.greatest, logf(seen.exp_sum)};
  if (threadIdx.x == 0) losses[row] = Loss(seen, log_sum, column, logit, shape);
  const Derivative derivative(log_sum, *gradient, column, shape);
  SweepGradient<T, kSize>(derivative, x, shape);
  if (column.IsMine<kSize>()) WriteTarget(derivative, logit, x, column);
}

// Rows of at most this number of columns are processed by one thread each. The thread reads its row twice to compute
// the loss. The rows of neighbouring threads lie in the same cache lines.
constexpr int64_t kFewColumns = 32;

// Returns the row that belongs to this thread. The thread has no row if the result is shape.rows or more.
__device__ int64_t OwnRow() { return int64_t{blockIdx.x} * kSweepThreads + threadIdx.x; }

template <typename T>
__device__ Seen SeenAlone(const T* x, const CrossEntropyShape& shape) {
  const int classes = static_cast<int>(shape.classes);
  Seen seen;
  for (int c = 0; c < classes; ++c) seen.greatest = fmaxf(seen.greatest, ToFloat(x[c]));
  const float base = Base(seen.greatest);
  for (int c = 0; c < classes; ++c) {
    const float logit = ToFloat(x[c]);
    seen.exp_sum += Exp(logit - base);
    seen.sum += logit;
  }
  return seen;
}

template <typename T>
__device__ void WriteAlone(const Derivative& derivative, T* x, const Target& target,
                           const CrossEntropyShape& shape) {
  const float logit = target.Logit(x);
  for (int c = 0; c < static_cast<int>(shape.columns); ++c) {
    x[c] = FromFloat<T>(c < shape.classes ? derivative(ToFloat(x[c])) : 0);
  }
  if (target.column >= 0) WriteTarget(derivative, logit, x, target);
}

template <typename T>
__global__ void __launch_bounds__(kSweepThreads)
    ForwardOfFew(const T* logits, const int64_t* target, float* losses, LogSum* log_sums,
                 CrossEntropyShape shape) {
  const int64_t row = OwnRow();
  if (row >= shape.rows) return;
  const T* x = logits + row * shape.columns;
  const Seen seen = SeenAlone(x, shape);
  const LogSum log_sum{seen.greatest, logf(seen.exp_sum)};
  log_sums[row] = log_sum;
  const Target column(target[row], shape);
  losses[row] = Loss(seen, log_sum, column, column.Logit(x), shape);
}

template <typename T>
__global__ void __launch_bounds__(kSweepThreads)
    BackwardOfFew(T* logits, const int64_t* target, const LogSum* log_sums, const float* gradient,
                  CrossEntropyShape shape) {
  const int64_t row = OwnRow();
  if (row >= shape.rows) return;
  const Target column(target[row], shape);
  const Derivative derivative(log_sums[row], *gradient, column, shape);
  WriteAlone(derivative, logits + row * shape.columns, column, shape);
}

template <typename T>
__global__ void __launch_bounds__(kSweepThreads)
    LossAndGradientOfFew(T* logits, const int64_t* target, const float* gradient, float* losses,
                         CrossEntropyShape shape) {
  const int64_t row = OwnRow();
  if (row >= shape.rows) return;
  T* x = logits + row * shape.columns;
  const Seen seen = SeenAlone(x, shape);
  const LogSum log_sum{seen.greatest, logf(seen.exp_sum)};
  const Target column(target[row], shape);
  losses[row] = Loss(seen, log_sum, column, column.Logit(x), shape);
  WriteAlone(Derivative(log_sum, *gradient, column, shape), x, column, shape);
}

// Returns the number of blocks for kernels in which one thread processes a row.
unsigned BlocksOfFew(const CrossEntropyShape& shape) {
  return static_cast<unsigned>(CeilDivide<int64_t>(shape.rows, kSweepThreads));
}

// Returns whether rows begin at multiples of 16 bytes and consist of whole packs.
template <typename T>
bool IsPacked(const void* logits, const CrossEntropyShape& shape) {
  return IsAligned(logits) && shape.columns % Pack<T>::kSize == 0;
}

template <typename T>
void ForwardOf(const void* logits, const int64_t* target, float* losses, LogSum* log_sums,
               const CrossEntropyShape& shape, cudaStream_t stream) {
  if (shape.columns <= kFewColumns) {
    ForwardOfFew<T><<<BlocksOfFew(shape), kSweepThreads, 0, stream>>>(
        static_cast<const T*>(logits), target, losses, log_sums, shape);
    return;
  }
  const bool packed = IsPacked<T>(logits, shape);
  const auto kernel = packed ? Forward<T, Pack<T>::kSize> : Forward<T, 1>;
  const int64_t packs = shape.classes / (packed ? Pack<T>::kSize : 1) + 1;
  kernel<<<static_cast<unsigned>(shape.rows), Threads(packs, kAtOnce, kSweepThreads), 0, stream>>>(
      static_cast<const T*>(logits), target, losses, log_sums, shape);
}

template <typename T>
void BackwardOf(void* logits, const int64_t* target, const LogSum* log_sums, const float* gradient,
                const CrossEntropyShape& shape, cudaStream_t stream) {
  if (shape.columns <= kFewColumns) {
    BackwardOfFew<T><<<BlocksOfFew(shape), kSweepThreads, 0, stream>>>(
        static_cast<T*>(logits), target, log_sums, gradient, shape);
    return;
  }
  const bool packed = IsPacked<T>(logits, shape);
  const auto kernel = packed ? Backward<T, Pack<T>::kSize> : Backward<T, 1>;
  const int64_t packs = shape.columns / (packed ? Pack<T>::kSize : 1);
  kernel<<<static_cast<unsigned>(shape.rows), Threads(packs, kAtOnce, kSweepThreads), 0, stream>>>(
      static_cast<T*>(logits), target, log_sums, gradient, shape);
}

template <typename T>
void LossAndGradientOf(void* logits, const int64_t* target, const float* gradient, float* losses,
                       const CrossEntropyShape& shape, cudaStream_t stream) {
  if (shape.columns <= kFewColumns) {
    LossAndGradientOfFew<T><<<BlocksOfFew(shape), kSweepThreads, 0, stream>>>(
        static_cast<T*>(logits), target, gradient, losses, shape);
    return;
  }
  const bool packed = IsPacked<T>(logits, shape);
  const int64_t packs = shape.columns / (packed ? Pack<T>::kSize : 1);
  const auto launch = [&](auto* kernel, int64_t each) {
    kernel<<<static_cast<unsigned>(shape.rows), Threads(packs, each, kMostThreads), 0, stream>>>(
        static_cast<T*>(logits), target, gradient, losses, shape);
  };
  if (!packed) return launch(LossAndGradientInTwo<T, 1>, kAtOnce);
  if (packs > int64_t{kMostHeld} * kMostThreads) {
    return launch(LossAndGradientInTwo<T, Pack<T>::kSize>, kAtOnce);
  }
  if (shape.columns * static_cast<int64_t>(sizeof(T)) >= kLongRowBytes) {
    const auto launch_pipelined =
        shape.label_smoothing > 0 ? LaunchPipelined<T, true> : LaunchPipelined<T, false>;
    if (launch_pipelined(static_cast<T*>(logits), target, gradient, losses, shape, stream)) return;
  }
  // A short row gets a small block, so that each thread still has several loads in flight.
  if (packs <= 32) return launch(LossAndGradient<T, 1>, 1);
  if (packs <= 128) return launch(LossAndGradient<T, 2>, 2);
  if (packs <= 512) return launch(LossAndGradient<T, 4>, 4);
  launch(LossAndGradient<T, kMostHeld>, kMostHeld);
}

}  // namespace

void LaunchCrossEntropy(const void* logits, FloatType type, const int64_t* target, float* losses,
                        LogSum* log_sums, const CrossEntropyShape& shape, cudaStream_t stream) {
  if (shape.rows == 0) return;
  WithType(type, [&](auto zero) {
    ForwardOf<decltype(zero)>(logits, target, losses, log_sums, shape, stream);
  });
}

void LaunchCrossEntropyBackward(void* logits, FloatType type, const int64_t* target,
                                const LogSum* log_sums, const float* gradient,
                                const CrossEntropyShape& shape, cudaStream_t stream) {
  if (shape.rows == 0) return;
  WithType(type, [&](auto zero) {
    BackwardOf<decltype(zero)>(logits, target, log_sums, gradient, shape, stream);
  });
}

void LaunchCrossEntropyAndGradient(void* logits, FloatType type, const int64_t* target,
                                   const float* gradient, float* losses,
                                   const CrossEntropyShape& shape, cudaStream_t stream) {
  if (shape.rows == 0) return;
  WithType(type, [&](auto zero) {
    LossAndGradientOf<decltype(zero)>(logits, target, gradient, losses, shape, stream);
  });
}

}  // namespace lockstep::ops
