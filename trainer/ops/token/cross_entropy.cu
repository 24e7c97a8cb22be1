#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/ceil_divide.h"
#include "trainer/ops/common/pack.cuh"
#include "trainer/ops/common/warp_sum.cuh"
#include "trainer/ops/token/cross_entropy_kernel.h"

namespace lockstep::ops {
namespace {

// A row is a block's: there are always many rows.
constexpr int kWarpThreads = 32;
constexpr int kMostThreads = 1024;
// Of blocks that sweep a row once: small ones, some of which load while others wait at a barrier.
constexpr int kSweepThreads = 256;
// Loads of a thread in flight where a row is swept.
constexpr int kAtOnce = 4;
// Packs that a thread holds of a row in registers: 32 of them, half of what a block of 1,024 has.
constexpr int kMostHeld = 8;
// Rows that are on their way to a block's shared memory while it computes one in registers: enough
// to keep the memory busy, whatever the block is at.
constexpr int kRowsAhead = 2;
// Rows from which on they are. Of shorter ones a multiprocessor has many blocks, some of which load
// while others compute.
constexpr int64_t kLongRowBytes = 16 << 10;
// Where rows begin in shared memory, as in memory.
constexpr int kLineBytes = 128;

// The compiler forgets what it has computed from x, which would otherwise take up registers.
__device__ void Forget(unsigned& x) { asm volatile("" : "+r"(x)); }

// How many of the columns from `column` on come before `end`.
__device__ unsigned Before(int column, int end) {
  unsigned count = static_cast<unsigned>(max(end - column, 0));
  Forget(count);
  return count;
}

// A pack that stays in registers as the words it is loaded in, half as many as its values unpacked.
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
  // From here on the values are unpacked anew.
  __device__ void Forget() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) ops::Forget(words_[i]);
  }

 private:
  static constexpr int kWords = (kSize * sizeof(T) + 3) / 4;
  alignas(16) unsigned words_[kWords];
};

// Of some of a row's logits.
struct Seen {
  float greatest = -INFINITY;
  float exp_sum = 0;  // of exp(logit - greatest)
  float sum = 0;      // of the logits, where labels are smoothed
};

constexpr float kLog2OfE = 1.44269504f;

// 2^x in one instruction, which makes what is below 2^-126 0; otherwise as accurate as __expf.
__device__ float Exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

__device__ float Exp(float x) { return Exp2(x * kLog2OfE); }

// What to subtract before exp: logits that are all -inf have no finite greatest, and exp(-inf) = 0.
__device__ float Base(float greatest) { return greatest == -INFINITY ? 0 : greatest; }

// No lane's x is NaN.
__device__ float GreatestOfWarp(float x) {
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
__device__ int PackOf(int first, int k) { return first + k * static_cast<int>(blockDim.x); }

// Packs first, first + blockDim.x, ... of row x as far as they have classes. Beside these a column
// that is no class reads as -inf.
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
  // The greatest first: one rescaling for all packs.
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

// Row x as the block sees it in one sweep.
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

__device__ float Loss(const Seen& row, const LogSum& log_sum, const Target& target,
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

// The derivative of what Load has read, to where it was read. The target is left to WriteTarget.
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

// By the thread that has written the target's pack, after it.
template <typename T>
__device__ void WriteTarget(const Derivative& derivative, float logit, T* x, const Target& target) {
  x[target.column] = FromFloat<T>(derivative(logit) - derivative.wanted);
}

template <typename T, int kSize>
__device__ void SweepGradient(const Derivative& derivative, T* x, const CrossEntropyShape& shape) {
  const int packs = static_cast<int>(shape.columns) / kSize;
  const int step = static_cast<int>(blockDim.x) * kAtOnce;
  // From the end, which an earlier sweep has left in the cache.
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
  // Read by the one thread that overwrites it.
  const bool is_mine = column.IsMine<kSize>();
  const float logit = is_mine ? column.Logit(x) : 0;
  SweepGradient<T, kSize>(derivative, x, shape);
  if (is_mine) WriteTarget(derivative, logit, x, column);
}

// A block a row, no longer than kHeld packs a thread, which is read once.
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
  // Before any thread writes: OfBlock is a barrier.
  const float logit = column.Logit(x);
  seen = OfBlock(seen);
  const LogSum log_sum{seen.greatest, logf(seen.exp_sum)};
  if (thread == 0) losses[row] = Loss(seen, log_sum, column, logit, shape);
  const Derivative derivative(log_sum, scale, column, shape);
  Write(held, derivative, x, thread, shape);
  if (column.IsMine<kSize>()) WriteTarget(derivative, logit, x, column);
}

// From Hopper on a thread can have whole rows copied to shared memory without registers and without
// waiting for them.
#if __CUDA_ARCH__ >= 900
__device__ unsigned SharedAddress(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Each phase has one arrival, StartCopy's. The fence shows the barrier to what copies.
__device__ void StartBarrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SharedAddress(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// The barrier's phase ends when all bytes, which are below 2^20, are there. These and the addresses
// are multiples of 16.
__device__ void StartCopy(void* to, const void* from, unsigned bytes, uint64_t* barrier) {
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

// Until the phase has ended whose number has this parity.
__device__ void WaitForPhase(uint64_t* barrier, unsigned parity) {
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

// Two logits, which an instruction takes at once where they have 16 bits.
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

__device__ float2 ToFloats(float2 pair) { return pair; }
__device__ float2 ToFloats(__half2 pair) { return __half22float2(pair); }
__device__ float2 ToFloats(__nv_bfloat162 pair) {
  unsigned word;
  memcpy(&word, &pair, sizeof(word));
  return BFloat16Pair(word);
}

template <typename T>
__device__ Pair<T> FromFloats(float2 values);
template <>
__device__ float2 FromFloats<float>(float2 values) {
  return values;
}
template <>
__device__ __half2 FromFloats<__half>(float2 values) {
  return __float22half2_rn(values);
}
template <>
__device__ __nv_bfloat162 FromFloats<__nv_bfloat16>(float2 values) {
  return __float22bfloat162_rn(values);
}

// Of NaN and a number, the number.
template <typename Halves>
__device__ Halves Greater(Halves a, Halves b) {
  return __hmax2(a, b);
}
__device__ float2 Greater(float2 a, float2 b) { return {fmaxf(a.x, b.x), fmaxf(a.y, b.y)}; }

// Both, and neither is NaN.
template <typename Halves>
__device__ bool AreAtMost(Halves pair, Halves limit) {
  return __hble2(pair, limit);
}
__device__ bool AreAtMost(float2 pair, float2 limit) {
  return pair.x <= limit.x && pair.y <= limit.y;
}

// A pack's pairs, and back.
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

__device__ void Forget(uint4& words) {
  Forget(words.x);
  Forget(words.y);
  Forget(words.z);
  Forget(words.w);
}

// What a thread sees of a row, one pack after the other, without a look ahead for the greatest
// logit: any that is near it does as what exps are relative to. Seen's `greatest` is that of the
// first pack, raised to that of each pack that exceeds it by more than kSlack. So an exp is at most
// e^8, or e^16 where bfloat16 rounds the limit up.
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

  // NaN and infinity get here too, and make the sum NaN when they are added to it.
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

// As many blocks as fit the GPU walk over all rows. In its round i a block
//   1. waits until its row i is in shared memory;
//   2. pack by pack, writes the gradient of row i - 1, which is in registers, to its place, and
//      takes row i into these registers and into the sum of exps;
//   3. adds up the threads' sums, by a barrier after which nobody needs row i in shared memory;
//   4. starts the copy of row i + kRowsAhead to there.
// So the memory always has something to read and something to write, and the arithmetic of both
// rows is done meanwhile. A loop over the row for its greatest logit would be in the way: Running
// does without.
//
// Of a row a thread has each blockDim.x-th of the packs that are classes only, and one of the less
// than kSize classes after these.
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

  // The row that is in registers.
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

  // One round more than there are rows, to write the last: what it reads is no row's and not used.
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

// Any row, in two sweeps: large blocks, so that few rows are under way and the second sweep finds
// its row in the L2 cache.
template <typename T, int kSize>
__global__ void __launch_bounds__(kMostThreads, 1)
    LossAndGradientInTwo(T* logits, const int64_t* target, const float* gradient, float* losses,
                         CrossEntropyShape shape) {
  const int64_t row = blockIdx.x;
  T* x = logits + row * shape.columns;
  // Before any thread writes: OfBlock is a barrier.
  const Target column(target[row], shape);
  const float logit = column.Logit(x);
  const Seen seen = Sweep<T, kSize>(x, shape);
  const LogSum log_sum{seen.greatest, logf(seen.exp_sum)};
  if (threadIdx.x == 0) losses[row] = Loss(seen, log_sum, column, logit, shape);
  const Derivative derivative(log_sum, *gradient, column, shape);
  SweepGradient<T, kSize>(derivative, x, shape);
  if (column.IsMine<kSize>()) WriteTarget(derivative, logit, x, column);
}

// Rows begin at multiples of 16 bytes and end with a whole pack.
template <typename T>
bool IsPacked(const void* logits, const CrossEntropyShape& shape) {
  return IsAligned(logits) && shape.columns % Pack<T>::kSize == 0;
}

// Whole warps, so that a thread has about `each` packs.
unsigned Threads(int64_t packs, int64_t each, int64_t most) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(RoundUp(CeilDivide(packs, each), kWarpThreads), kWarpThreads, most));
}

template <typename T>
void ForwardOf(const void* logits, const int64_t* target, float* losses, LogSum* log_sums,
               const CrossEntropyShape& shape, cudaStream_t stream) {
  const bool packed = IsPacked<T>(logits, shape);
  const auto kernel = packed ? Forward<T, Pack<T>::kSize> : Forward<T, 1>;
  const int64_t packs = shape.classes / (packed ? Pack<T>::kSize : 1) + 1;
  kernel<<<static_cast<unsigned>(shape.rows), Threads(packs, kAtOnce, kSweepThreads), 0, stream>>>(
      static_cast<const T*>(logits), target, losses, log_sums, shape);
}

template <typename T>
void BackwardOf(void* logits, const int64_t* target, const LogSum* log_sums, const float* gradient,
                const CrossEntropyShape& shape, cudaStream_t stream) {
  const bool packed = IsPacked<T>(logits, shape);
  const auto kernel = packed ? Backward<T, Pack<T>::kSize> : Backward<T, 1>;
  const int64_t packs = shape.columns / (packed ? Pack<T>::kSize : 1);
  kernel<<<static_cast<unsigned>(shape.rows), Threads(packs, kAtOnce, kSweepThreads), 0, stream>>>(
      static_cast<T*>(logits), target, log_sums, gradient, shape);
}

// False where the GPU cannot run LossAndGradientPipelined.
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
  // What the kernel has besides.
  most_bytes -= (static_cast<int>(attributes.sharedSizeBytes) / kLineBytes + 1) * kLineBytes;
  const int64_t bytes = kRowsAhead * shape.columns * static_cast<int64_t>(sizeof(T));
  if (capability < 9 || bytes > most_bytes) return false;

  // About half of what a thread can hold, so that a row of GPT-2's has all threads that there are.
  const unsigned threads = Threads(shape.columns / Pack<T>::kSize, kAtOnce, kMostThreads);
  int resident = 1;
  // Always the most: another thread may launch for another shape.
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_bytes);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, static_cast<int>(threads),
                                                static_cast<size_t>(bytes));
  const int64_t blocks = std::min(shape.rows, int64_t{multiprocessors} * std::max(resident, 1));
  kernel<<<static_cast<unsigned>(blocks), threads, static_cast<size_t>(bytes), stream>>>(
      logits, target, gradient, losses, shape);
  return true;
}

template <typename T>
void LossAndGradientOf(void* logits, const int64_t* target, const float* gradient, float* losses,
                       const CrossEntropyShape& shape, cudaStream_t stream) {
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
  // A short row has a small block, with some loads of each thread in flight all the same.
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
