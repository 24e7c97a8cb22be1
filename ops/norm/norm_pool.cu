#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/ceil_divide.h"
#include "ops/common/pack.cuh"
#include "ops/common/partial_sums.cuh"
#include "ops/norm/norm_affine.cuh"
#include "ops/norm/norm_pool_kernel.h"

namespace lockstep::ops {
namespace {

// In the kernels for forward and for dx, a thread processes one pack of channels of one pooled column. The thread goes
// down kRows pooled rows, in every gridDim.y-th image. The values that a window shares with the window below it, and
// the weights and statistics of the channels, stay in registers. These two kernels go from the last image to the first,
// while the kernels for statistics and sums go from the first image to the last. Each kernel therefore begins with
// images that are still in the L2 cache.
constexpr int kThreads = 128;
// The numbers of blocks of the two kernels that run on a multiprocessor at once. The compiler limits the registers of a
// thread accordingly.
constexpr int kForwardBlocks = 5;
constexpr int kBackwardBlocks = 4;
constexpr int kRows = 8;

// In the kernel for the sums, a block is kWide packs (128 bytes of a row) wide and kHigh rows high.
constexpr int kWide = 8;
constexpr int kHigh = 32;
constexpr int kSumBlocks = 2;  // the number of blocks that run on a multiprocessor at once
constexpr int kUnroll = 2;     // the number of rows whose loads a thread has in flight

// The part of an image that a thread processes.
struct Walk {
  unsigned pack;
  int column;  // the pooled column
  int first;   // the first pooled row
  int end;

  __device__ Walk(unsigned index, unsigned packs, const NormPoolShape& shape) {
    const unsigned pixel = index / packs;
    pack = index % packs;
    column = static_cast<int>(pixel % shape.pooled_width);
    first = static_cast<int>(pixel / shape.pooled_width) * kRows;
    end = min(first + kRows, shape.pooled_height);
  }
};

// An integer, the key, by which the values of a window are compared. The upper half of a key holds the bits of norm(x),
// rounded to T as y is. For floats that are not negative, the order of the bits as integers is the order of the floats,
// with NaN last. Negative floats have negative keys; the order of negative keys does not matter, because ReLU lets no
// negative float pass. The lower half of a key is the code 8 - position, so that the first of several equal values has
// the greatest key.
template <typename T>
using Key = std::conditional_t<sizeof(T) == 2, int32_t, int64_t>;
template <typename T>
constexpr Key<T> kOne = Key<T>{1} << 8 * sizeof(T);  // 1 in the upper half
constexpr int kNothingPasses = 9;

template <typename T>
struct Keys {
  static constexpr int kSize = Pack<T>::kSize;
  Key<T> values[kSize];

  // Returns keys that are less than all other keys.
  __device__ static Keys None() {
    Keys none;
#pragma unroll
    for (int i = 0; i < kSize; ++i) none.values[i] = std::numeric_limits<Key<T>>::min();
    return none;
  }
};

template <typename T>
__device__ Keys<T> KeysOf(const uint4& words, const Affine<Pack<T>::kSize>& norm, int code) {
  constexpr int kSize = Pack<T>::kSize;
  const Floats<kSize> x = ToFloats<T>(words);
  // All values are rounded in one loop, so that the compiler rounds the two 16-bit values of a word with one
  // instruction.
  Pack<T> rounded;
#pragma unroll
  for (int i = 0; i < kSize; ++i) rounded.values[i] = FromFloat<T>(norm(x.values[i], i));
  const Pack<int32_t> bits = Unpack<int32_t>(__builtin_bit_cast(uint4, rounded));
  Keys<T> keys;
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    if constexpr (sizeof(T) == 4) {
      keys.values[i] = int64_t{bits.values[i]} * kOne<T> + code;
    } else {
      const int pair = bits.values[i / 2];
      keys.values[i] = (i % 2 == 0 ? pair << 16 : pair & 0xffff0000) | code;
    }
  }
  return keys;
}

// Replaces each key of `best` by the maximum of this key and the key of `other` plus `add`. `add` is added to the code
// of the key of `other`.
template <typename T>
__device__ void Merge(Keys<T>& best, const Keys<T>& other, int add = 0) {
#pragma unroll
  for (int i = 0; i < Keys<T>::kSize; ++i) {
    best.values[i] = max(best.values[i], other.values[i] + add);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, kForwardBlocks)
    Forward(NormPoolForward t, NormPoolShape shape, unsigned threads) {
  constexpr int kSize = Pack<T>::kSize;
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= threads) return;
  const int packs = shape.channels / kSize;
  const Walk walk(index, packs, shape);
  const auto norm = AffineOf<kSize>(t.weight, t.bias, t.statistics, shape.channels, walk.pack);
  const bool has_left = walk.column > 0;
  const bool has_right = 2 * walk.column + 1 < shape.width;
  const auto load = [&](const uint4* middle, uint4(&loaded)[3]) {
    if (has_left) loaded[0] = middle[-packs];
    loaded[1] = middle[0];
    if (has_right) loaded[2] = middle[packs];
  };
  // Returns the greatest keys in one row of the window. `code` is the code of the right value of the row.
  const auto greatest_of = [&](const uint4(&loaded)[3], int code) {
    Keys<T> greatest = KeysOf<T>(loaded[1], norm, code + 1);
    if (has_left) Merge(greatest, KeysOf<T>(loaded[0], norm, code + 2));
    if (has_right) Merge(greatest, KeysOf<T>(loaded[2], norm, code));
    return greatest;
  };
  for (int64_t image = shape.count - 1 - blockIdx.y; image >= 0; image -= gridDim.y) {
    const int width = shape.width * packs;
    const uint4* from =
        static_cast<const uint4*>(t.x) +
        ((image * shape.height + 2 * walk.first) * shape.width + 2 * walk.column) * packs +
        walk.pack;
    int64_t to =
        ((image * shape.pooled_height + walk.first) * shape.pooled_width + walk.column) * packs +
        walk.pack;
    uint4 loaded[2][3];
    Keys<T> shared = Keys<T>::None();
    if (walk.first > 0) {
      load(from - width, loaded[1]);
      shared = greatest_of(loaded[1], 0);
    }
#pragma unroll 1
    for (int row = walk.first; row < walk.end; ++row) {
      const bool has_below = 2 * row + 1 < shape.height;
      load(from, loaded[0]);
      if (has_below) load(from + width, loaded[1]);
      Keys<T> best = greatest_of(loaded[0], 3);
      Merge(best, shared, 6);
      if (has_below) {
        shared = greatest_of(loaded[1], 0);
        Merge(best, shared);
      }
      using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
      Pack<T> y;
      Pack<uint8_t, kSize> codes;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        // If no value is positive, y becomes 0 and the code becomes kNothingPasses.
        const Key<T> key = max(best.values[i], Key<T>{kNothingPasses});
        y.values[i] = __builtin_bit_cast(T, static_cast<Bits>(key / kOne<T>));
        codes.values[i] = static_cast<uint8_t>(key);
      }
      Store(t.y, to, y);
      reinterpret_cast<Pack<uint8_t, kSize>*>(t.codes)[to] = codes;
      from += 2 * width;
      to += shape.pooled_width * packs;
    }
  }
}

// The place of a pixel in the pooled images. The kernel for the sums treats the pooled pixels as the rows of a matrix.
struct PooledPixel {
  int64_t image;
  int row;
  int column;

  __device__ PooledPixel(int64_t index, const NormPoolShape& shape)
      : image(index / shape.pooled_width / shape.pooled_height),
        row(static_cast<int>(index / shape.pooled_width % shape.pooled_height)),
        column(static_cast<int>(index % shape.pooled_width)) {}

  // Adds the row, the column and the image of `other`, without the divisions of the constructor.
  __device__ void Add(const PooledPixel& other, const NormPoolShape& shape) {
    column += other.column;
    const int over = column >= shape.pooled_width ? 1 : 0;
    column -= over * shape.pooled_width;
    row += other.row + over;
    const int below = row >= shape.pooled_height ? 1 : 0;
    row -= below * shape.pooled_height;
    image += other.image + below;
  }
  // Returns the index of the pixel of x where the window begins. The window may begin outside of the image.
  __device__ int64_t FirstOfWindow(const NormPoolShape& shape) const {
    return (image * shape.height + 2 * row - 1) * shape.width + 2 * column - 1;
  }
};

// Computes the sums of dz x^ and of dz (norm_pool_kernel.h). The kernel goes through the pooled pixels, because each
// window adds its dy only to dz of the pixel with the window's greatest value (the winner).
template <typename T>
__global__ void __launch_bounds__(kWide* kHigh, kSumBlocks)
    Sums(NormPoolBackward t, NormPoolShape shape, int64_t rows) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kColumns = 2 * kSize * kWide;
  const int64_t channels = shape.channels;
  const int64_t packs = channels / kSize;
  const int64_t pack = int64_t{blockIdx.x} * kWide + threadIdx.x;
  float sums[2][kSize] = {};
  if (pack < packs) {
    const Floats<kSize> mean = LoadFloats<kSize>(t.statistics, pack);
    const int64_t stride = int64_t{gridDim.y} * kHigh;
    const int64_t begin = int64_t{blockIdx.y} * kHigh + threadIdx.y;
    const PooledPixel step(stride, shape);
    PooledPixel pixel(begin, shape);
    for (int64_t first = begin; first < rows; first += kUnroll * stride) {
      Pack<uint8_t, kSize> codes[kUnroll];
      uint4 gradients[kUnroll];
      T winners[kUnroll][kSize];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t row = first + u * stride;
        if (row >= rows) continue;
        codes[u] = reinterpret_cast<const Pack<uint8_t, kSize>*>(t.codes)[row * packs + pack];
        gradients[u] = Load(t.dy, row * packs + pack);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * stride < rows) {
          const int64_t corner = pixel.FirstOfWindow(shape) * channels + pack * kSize;
#pragma unroll
          for (int i = 0; i < kSize; ++i) {
            if (codes[u].values[i] == kNothingPasses) continue;
            const int position = 8 - codes[u].values[i];
            const int64_t from = (position / 3 * shape.width + position % 3) * channels;
            winners[u][i] = static_cast<const T*>(t.x)[corner + from + i];
          }
        }
        pixel.Add(step, shape);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * stride >= rows) continue;
        const Floats<kSize> dy = ToFloats<T>(gradients[u]);
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          if (codes[u].values[i] == kNothingPasses) continue;
          const float x = ToFloat(winners[u][i]);
          sums[0][i] = fmaf(dy.values[i], x - mean.values[i], sums[0][i]);
          sums[1][i] += dy.values[i];
        }
      }
    }
    const Floats<kSize> rstd = LoadFloats<kSize>(t.statistics + channels, pack);
#pragma unroll
    for (int i = 0; i < kSize; ++i) sums[0][i] *= rstd.values[i];
  }
  __shared__ float shared[kHigh][kColumns];
#pragma unroll
  for (int i = 0; i < 2 * kSize; ++i) {
    shared[threadIdx.y][i * kWide + threadIdx.x] = sums[i / kSize][i % kSize];
  }
  __syncthreads();
  // One thread adds up each column.
  const int column = static_cast<int>(threadIdx.y * kWide + threadIdx.x);
  const int64_t own_pack = int64_t{blockIdx.x} * kWide + column % kWide;
  if (column >= kColumns || own_pack >= packs) return;
  float sum = 0;
#pragma unroll
  for (int row = 0; row < kHigh; ++row) sum += shared[row][column];
  const int which = column / kWide / kSize;
  const int64_t channel = own_pack * kSize + column / kWide % kSize;
  t.partials[(int64_t{blockIdx.y} * 2 + which) * channels + channel] = sum;
}

// The dy of two windows side by side, and the codes of the windows' greatest values.
template <typename T>
struct Windows {
  static constexpr int kSize = Pack<T>::kSize;
  using Codes = std::conditional_t<kSize == 8, uint2, uint32_t>;
  uint4 dy[2];
  Codes codes[2];

  __device__ static Windows None() {
    Pack<uint8_t, kSize> codes;
#pragma unroll
    for (int i = 0; i < kSize; ++i) codes.values[i] = kNothingPasses;
    const auto none = __builtin_bit_cast(Codes, codes);
    return {.dy = {}, .codes = {none, none}};
  }
};

// Computes dx. At each step a thread computes dx for the pixels (2 i, 2 j) to (2 i + 1, 2 j + 1), where i is the
// thread's pooled row and j is the thread's pooled column. Only the windows (i, j), (i, j + 1), (i + 1, j) and (i + 1,
// j + 1) contain any of these pixels.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks)
    Backward(NormPoolBackward t, NormPoolShape shape, unsigned threads) {
  constexpr int kSize = Pack<T>::kSize;
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= threads) return;
  const int packs = shape.channels / kSize;
  const Walk walk(index, packs, shape);
  const auto gradient =
      InputGradientOf<kSize>(t.weight, t.statistics, t.d_weights, shape.channels, walk.pack);
  const bool has_next = walk.column + 1 < shape.pooled_width;
  const bool has_right = 2 * walk.column + 1 < shape.width;
  const int width = shape.width * packs;
  const int pooled_width = shape.pooled_width * packs;
  const auto load = [&](int64_t from) {
    Windows<T> windows = Windows<T>::None();
    const auto* codes =
        static_cast<const typename Windows<T>::Codes*>(static_cast<const void*>(t.codes));
    windows.dy[0] = Load(t.dy, from);
    windows.codes[0] = codes[from];
    if (has_next) {
      windows.dy[1] = Load(t.dy, from + packs);
      windows.codes[1] = codes[from + packs];
    }
    return windows;
  };
  for (int64_t image = shape.count - 1 - blockIdx.y; image >= 0; image -= gridDim.y) {
    int64_t from =
        (image * shape.pooled_height + walk.first) * pooled_width + walk.column * packs + walk.pack;
    int64_t pixel =
        (image * shape.height + 2 * walk.first) * width + 2 * walk.column * packs + walk.pack;
    Windows<T> windows[2];
    windows[1] = load(from);
#pragma unroll 1
    for (int row = walk.first; row < walk.end; ++row) {
      const bool has_below = 2 * row + 1 < shape.height;
      const bool is_inside[2][2] = {{true, has_right}, {has_below, has_below && has_right}};
      uint4 x[2][2];
#pragma unroll
      for (int at = 0; at < 4; ++at) {
        if (is_inside[at / 2][at % 2]) {
          x[at / 2][at % 2] = Load(t.x, pixel + at / 2 * width + at % 2 * packs);
        }
      }
      windows[0] = windows[1];
      from += pooled_width;
      windows[1] = row + 1 < shape.pooled_height ? load(from) : Windows<T>::None();
#pragma unroll
      for (int at = 0; at < 4; ++at) {
        const int down = at / 2;
        const int right = at % 2;
        if (!is_inside[down][right]) continue;
        float dz[kSize] = {};
#pragma unroll
        for (int below = 0; below <= down; ++below) {
#pragma unroll
          for (int next = 0; next <= right; ++next) {
            const int position = (1 + down - 2 * below) * 3 + 1 + right - 2 * next;
            const Floats<kSize> dy = ToFloats<T>(windows[below].dy[next]);
            const auto codes = __builtin_bit_cast(Pack<uint8_t, kSize>, windows[below].codes[next]);
#pragma unroll
            for (int i = 0; i < kSize; ++i) {
              if (codes.values[i] == 8 - position) dz[i] += dy.values[i];
            }
          }
        }
        const Floats<kSize> values = ToFloats<T>(x[down][right]);
        Pack<T> dx;
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          dx.values[i] = FromFloat<T>(gradient(dz[i], values.values[i], i));
        }
        Store(t.dx, pixel + down * width + right * packs, dx);
      }
      pixel += 2 * width;
    }
  }
}

// Returns the number of threads for an image. `pack` is the number of channels of a pack.
unsigned WalksOf(const NormPoolShape& shape, int pack) {
  const int64_t strips = CeilDivide(shape.pooled_height, kRows);
  return static_cast<unsigned>(strips * shape.pooled_width * (shape.channels / pack));
}

// Returns a grid with enough threads in x for one image (`walks`), and with y = the number of images, up to
// kMostImages.
dim3 WalksGrid(unsigned walks, int64_t count) {
  constexpr int64_t kMostImages = 65535;
  return {CeilDivide(walks, kThreads), static_cast<unsigned>(std::min(count, kMostImages))};
}

int64_t PooledRows(const NormPoolShape& shape) {
  return shape.count * shape.pooled_height * shape.pooled_width;
}

dim3 SumsGrid(const NormPoolShape& shape, int pack) {
  const int64_t packs = shape.channels / pack;
  const int64_t wide = CeilDivide(packs, kWide);
  const int64_t resident = int64_t{shape.multiprocessors} * kSumBlocks / wide;
  // The maximum number of blocks in a column. With this many blocks each thread has about kUnroll rows.
  const int64_t most = CeilDivide(PooledRows(shape), kHigh * kUnroll);
  return {static_cast<unsigned>(wide),
          static_cast<unsigned>(std::clamp<int64_t>(resident, 1, most))};
}

}  // namespace

int64_t NormPoolPartialRows(FloatType type, const NormPoolShape& shape) {
  return SumsGrid(shape, ChannelsOfPack(type)).y;
}

void LaunchNormPool(const NormPoolForward& tensors, FloatType type, const NormPoolShape& shape,
                    cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    const unsigned walks = WalksOf(shape, Pack<T>::kSize);
    Forward<T><<<WalksGrid(walks, shape.count), kThreads, 0, stream>>>(tensors, shape, walks);
  });
}

void LaunchNormPoolSums(const NormPoolBackward& tensors, FloatType type, const NormPoolShape& shape,
                        cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    const dim3 grid = SumsGrid(shape, Pack<T>::kSize);
    Sums<T><<<grid, dim3(kWide, kHigh), 0, stream>>>(tensors, shape, PooledRows(shape));
    float* d_weights = tensors.d_weights;
    LaunchSumPartials(tensors.partials, {{.sums = d_weights}, {.sums = d_weights + shape.channels}},
                      grid.y, shape.channels, stream);
  });
}

void LaunchNormPoolBackward(const NormPoolBackward& tensors, FloatType type,
                            const NormPoolShape& shape, cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    const unsigned walks = WalksOf(shape, Pack<T>::kSize);
    Backward<T><<<WalksGrid(walks, shape.count), kThreads, 0, stream>>>(tensors, shape, walks);
  });
}

}  // namespace lockstep::ops
