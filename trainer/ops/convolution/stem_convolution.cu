#include <algorithm>
#include <type_traits>

#include "base/ceil_divide.h"
#include "trainer/ops/common/pack.cuh"
#include "trainer/ops/common/partial_sums.cuh"
#include "trainer/ops/convolution/stem_convolution_kernel.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kWindow = 4;  // squares of a side of the window

using Words = Pack<uint16_t>;

// Where an image has a square's first pixel, and whether it has.
struct FirstPixel {
  int row;
  int column;
  bool is_inside;

  __device__ FirstPixel(unsigned square, const SquaresShape& shape)
      : row(2 * (static_cast<int>(square / shape.framed_width) - shape.frame)),
        column(2 * (static_cast<int>(square % shape.framed_width) - shape.frame)),
        is_inside(row >= 0 && row < shape.height && column >= 0 && column < shape.width) {}
};

// A thread writes a pack of a square's channels, in every gridDim.y-th image.
__global__ void __launch_bounds__(kThreads)
    Squares(const uint16_t* x, Words* squares, SquaresShape shape) {
  const unsigned packs = shape.framed_channels / Words::kSize;
  const unsigned all = shape.framed_height * shape.framed_width * packs;
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= all) return;
  const int first = static_cast<int>(index % packs) * Words::kSize;
  const FirstPixel at(index / packs, shape);
  const auto [of_image, of_channel, of_row, of_column] = shape.strides;
  for (int64_t image = blockIdx.y; image < shape.count; image += gridDim.y) {
    const uint16_t* from = x + image * of_image + at.row * of_row + at.column * of_column;
    Words values;
#pragma unroll
    for (int k = 0; k < Words::kSize; ++k) {
      const int pixel = (first + k) / shape.channels;
      const int64_t offset =
          (first + k) % shape.channels * of_channel + pixel / 2 * of_row + pixel % 2 * of_column;
      values.values[k] = at.is_inside && pixel < 4 ? from[offset] : 0;
    }
    squares[image * all + index] = values;
  }
}

// Of pictures: a thread writes a square. kPairs: two pixels side by side are a word in memory.
constexpr int kColors = 3;
template <bool kPairs>
__global__ void __launch_bounds__(kThreads)
    SquaresOfPictures(const uint16_t* x, Words* squares, SquaresShape shape) {
  const unsigned all = shape.framed_height * shape.framed_width;
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= all) return;
  const FirstPixel at(index, shape);
  const auto [of_image, of_channel, of_row, of_column] = shape.strides;
  for (int64_t image = blockIdx.y; image < shape.count; image += gridDim.y) {
    const uint16_t* first = x + image * of_image + at.row * of_row + at.column * of_column;
    Words square[2] = {};
    const auto set = [&](int channel, uint16_t value) {
      square[channel / Words::kSize].values[channel % Words::kSize] = value;
    };
#pragma unroll
    for (int row = 0; at.is_inside && row < 2; ++row) {
#pragma unroll
      for (int color = 0; color < kColors; ++color) {
        const uint16_t* from = first + color * of_channel + row * of_row;
        ushort2 pair;
        if constexpr (kPairs) {
          pair = *reinterpret_cast<const ushort2*>(from);
        } else {
          pair = {from[0], from[of_column]};
        }
        set(2 * row * kColors + color, pair.x);
        set((2 * row + 1) * kColors + color, pair.y);
      }
    }
    Words* to = squares + 2 * (image * all + index);
    to[0] = square[0];
    to[1] = square[1];
  }
}

// Whether two pixels side by side are a word in memory wherever a square begins.
bool HasPairs(const void* x, const SquaresShape& shape) {
  const auto [of_image, of_channel, of_row, of_column] = shape.strides;
  return of_column == 1 && (of_image | of_channel | of_row) % 2 == 0 &&
         IsAligned(x, sizeof(ushort2));
}

// Values of a weight for squares.
__host__ __device__ int64_t ValuesOf(const StemWeightShape& shape) {
  return shape.outputs * kWindow * kWindow * shape.framed_channels;
}

// Where the weight has what the weight for squares has at `index`; less than 0: it is one of the
// zeros.
__device__ int64_t OffsetInWeight(int64_t index, const StemWeightShape& shape) {
  const int channel = static_cast<int>(index % shape.framed_channels);
  const int64_t window = index / shape.framed_channels;
  const int tap = static_cast<int>(window % (kWindow * kWindow));
  const int64_t output = window / (kWindow * kWindow);
  const int pixel = channel / shape.channels;
  const int row = 2 * (tap / kWindow) + pixel / 2 - 1;
  const int column = 2 * (tap % kWindow) + pixel % 2 - 1;
  if (pixel >= 4 || row < 0 || column < 0) return -1;
  return output * shape.strides[0] + channel % shape.channels * shape.strides[1] +
         row * shape.strides[2] + column * shape.strides[3];
}

__global__ void __launch_bounds__(kThreads)
    WeightOfSquares(const uint16_t* weight, uint16_t* of_squares, StemWeightShape shape) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= ValuesOf(shape)) return;
  const int64_t offset = OffsetInWeight(index, shape);
  of_squares[index] = offset < 0 ? uint16_t{0} : weight[offset];
}

// As SumPartials, but for where the sums go.
__global__ void __launch_bounds__(kPartialSlices* kPartialColumns)
    SumStemGradients(const float* partials, int64_t parts, SumsTo to, StemWeightShape shape) {
  const int64_t values = ValuesOf(shape);
  const int64_t index = int64_t{blockIdx.x} * kPartialColumns + threadIdx.x;
  const int64_t offset = index < values ? OffsetInWeight(index, shape) : -1;
  const float sum = SumOfRows(partials + index, offset >= 0 ? parts : 0, values);
  if (threadIdx.y == 0 && offset >= 0) Give(to, offset, sum);
}

// The weight's gradient is a product of two matrices: dy transposed, [outputs, pixels], and the
// squares under the windows, [pixels, taps and channels]. Its inner side is far longer than the
// others, so each block has the whole product over some of the pixels. It walks along rows of dy,
// down a strip of the image, and keeps in shared memory the rows that it multiplies, while the next
// ones are on their way. A tap's squares are those that lie so many squares further in shared
// memory: nothing is copied to line them up with dy.
//
// A warp has all outputs, and one row of the window's taps. So its product is as high as it is
// wide, which takes the fewest loads from shared memory: they would otherwise be the limit.
constexpr int kOutputs = 64;
constexpr int kChannels = 16;  // of a square
constexpr int kColumns = kWindow * kWindow * kChannels;
constexpr int kWarps = kWindow;
constexpr int kGradientThreads = 32 * kWarps;
constexpr int kBlocksPerMultiprocessor = 2;  // one multiplies while the other waits

constexpr int kTile = 16;   // pixels that an instruction sums over
constexpr int kTiles = 7;   // of the widest strip: an image of 224 by 224 pixels has one
constexpr int kStages = 3;  // rows of dy that are being multiplied or on their way

// Rows of squares that are being multiplied or on their way. Of three rows of dy, one at most
// begins another strip, as a strip has two rows at least: under that one's windows all rows are
// new, under another's one.
constexpr int kLeastHeight = kStages - 1;
constexpr int kRing = kWindow + kWindow + (kStages - 2);

// Matrices are loaded from shared memory by 8 packs of 16 bytes, of pixels that follow each other.
// They come from different banks if the packs' numbers in memory differ modulo 8.
constexpr int kPackBytes = 16;
constexpr int kDyBytes = 2 * kOutputs;       // of a pixel
constexpr int kSquareBytes = 2 * kChannels;  // likewise
constexpr int kSquaresOfStrip = kTiles * kTile + kWindow - 1;
constexpr int kDyRowBytes = kTiles * kTile * kDyBytes;
constexpr int kSquareRowBytes = kSquaresOfStrip * kSquareBytes;
constexpr int kSharedBytes = kStages * kDyRowBytes + kRing * kSquareRowBytes;

// Where in a row of dy a pixel's pack is: of 8, which take turns from pixel to pixel.
__device__ constexpr int DyPlace(int pixel, int pack) {
  return pixel * kDyBytes + (pack ^ (pixel % 8)) * kPackBytes;
}

// Where in a row of squares a square's pack is: of 2, which change places every 4 squares, whose
// packs are 8.
__device__ constexpr int SquarePlace(int square, int pack) {
  return square * kSquareBytes + (pack ^ (square / 4 % 2)) * kPackBytes;
}

// How images are cut into strips that a block's shared memory has room for.
struct Strips {
  int count;  // of an image, side by side
  int tiles;  // of each; past the image's end there are zeros
};

Strips StripsOf(int width) {
  const int tiles = CeilDivide(width, kTile);
  const int count = CeilDivide(tiles, kTiles);
  return {count, CeilDivide(tiles, count)};
}

// Starts a copy of a pack to shared memory; of zeros unless it is there.
__device__ inline void CopyPack(uint32_t to, const char* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(is_there ? kPackBytes : 0)
               : "memory");
}

// The copies started since the last such call are a group.
__device__ inline void EndCopyGroup() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for this thread's groups but for the last so many.
template <int kLater>
__device__ void AwaitCopyGroups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

// Loads four matrices of 8 by 8 values. Each 8 threads give the places of a matrix's rows.
__device__ inline void LoadMatrices(uint32_t (&values)[4], uint32_t place) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(place)
               : "memory");
}

// Likewise, transposed.
__device__ inline void LoadTransposed(uint32_t (&values)[4], uint32_t place) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(place)
               : "memory");
}

// sums += a b, of [16, 16] and [16, 8] values that the warp's threads have between them.
template <typename T>
__device__ void MultiplyAdd(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Where a block is on its way along the rows of dy.
struct Walk {
  int64_t image;
  int strip;
  int row;
  int stage;  // of this row
  int slot;   // in the ring: of the first row of squares under this row's windows

  __device__ Walk(int64_t index, int height, int strips)
      : image(index / height / strips),
        strip(static_cast<int>(index / height % strips)),
        row(static_cast<int>(index % height)),
        stage(0),
        slot(0) {}

  __device__ void Advance(int height, int strips) {
    stage = stage + 1 == kStages ? 0 : stage + 1;
    if (++row < height) {
      // All rows of squares but the first are under the next row's windows too.
      ++slot;
    } else {
      slot += kWindow;
      row = 0;
      if (++strip == strips) {
        strip = 0;
        ++image;
      }
    }
    if (slot >= kRing) slot -= kRing;
  }
};

// What a thread has of a tile: of dy, for each 16 outputs, and of squares, for each tap of a row.
struct Fragments {
  uint32_t dy[kOutputs / 16][4];
  uint32_t squares[kWindow][4];
};

template <typename T>
__device__ void SumProducts(const char* dy, const char* squares, float* partials,
                            const StemShape& shape, const Strips& strips) {
  extern __shared__ uint4 shared[];
  const auto stages = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t ring = stages + kStages * kDyRowBytes;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;

  const int64_t rows = shape.count * strips.count * shape.height;
  const int64_t begin = rows * blockIdx.x / gridDim.x;
  const int count = static_cast<int>(rows * (blockIdx.x + 1) / gridDim.x - begin);

  // A thread copies the same pack of pixels that are so far apart that it has the same place in
  // each.
  constexpr int kDyPacks = kDyBytes / kPackBytes;
  static_assert(kGradientThreads / kDyPacks == kTile && kTile % 8 == 0);
  const int dy_pixel = thread / kDyPacks;
  const uint32_t dy_place = stages + DyPlace(dy_pixel, thread % kDyPacks);
  constexpr int kSquarePacks = kSquareBytes / kPackBytes;
  constexpr int kSquares = kGradientThreads / kSquarePacks;  // that all threads copy at once
  constexpr int kCopies = CeilDivide(kSquaresOfStrip, kSquares);
  static_assert(kSquares % 8 == 0);
  const int square = thread / kSquarePacks;
  const uint32_t square_place = ring + SquarePlace(square, thread % kSquarePacks);

  Walk loading(begin, shape.height, strips.count);
  int loaded = 0;
  const auto load = [&] {
    if (loaded < count) {
      const int column = loading.strip * strips.tiles * kTile;
      const char* from =
          dy + ((loading.image * shape.height + loading.row) * shape.width + column) * kDyBytes +
          thread * kPackBytes;
      const uint32_t to = dy_place + loading.stage * kDyRowBytes;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile >= strips.tiles) break;
        CopyPack(to + tile * kTile * kDyBytes, from + tile * kTile * kDyBytes,
                 column + tile * kTile + dy_pixel < shape.width);
      }
      const int framed_width = shape.width + kWindow - 1;
      // Of the last row under the windows, and at first of those above.
#pragma unroll 1
      for (int r = loaded == 0 || loading.row == 0 ? 0 : kWindow - 1; r < kWindow; ++r) {
        const int64_t row = loading.image * (shape.height + kWindow - 1) + loading.row + r;
        const char* squares_from =
            squares + (row * framed_width + column) * kSquareBytes + thread * kPackBytes;
        const uint32_t squares_to = square_place + (loading.slot + r) % kRing * kSquareRowBytes;
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          if (i * kSquares + square >= kSquaresOfStrip) break;
          CopyPack(squares_to + i * kSquares * kSquareBytes,
                   squares_from + i * kSquares * kSquareBytes,
                   column + i * kSquares + square < framed_width);
        }
      }
      loading.Advance(shape.height, strips.count);
      ++loaded;
    }
    // Even of nothing, as groups are counted.
    EndCopyGroup();
  };

  // Where the row is that a thread names of its matrix: a pixel's pack of outputs or channels. Of
  // the four matrices a fragment of dy has the outputs change first, one of squares the pixels.
  uint32_t dy_rows[kOutputs / 16];
  uint32_t square_rows[kWindow];
#pragma unroll
  for (int m = 0; m < kOutputs / 16; ++m) {
    dy_rows[m] = stages + DyPlace(lane / 16 * 8 + lane % 8, 2 * m + lane / 8 % 2);
  }
#pragma unroll
  for (int tap = 0; tap < kWindow; ++tap) {
    square_rows[tap] = ring + SquarePlace(lane % 16 + tap, lane / 16);
  }

  float sums[kOutputs / 16][kWindow][2][4] = {};
  const auto multiply = [&](const Fragments& of) {
#pragma unroll
    for (int tap = 0; tap < kWindow; ++tap) {
#pragma unroll
      for (int m = 0; m < kOutputs / 16; ++m) {
        MultiplyAdd<T>(sums[m][tap][0], of.dy[m], of.squares[tap][0], of.squares[tap][1]);
        MultiplyAdd<T>(sums[m][tap][1], of.dy[m], of.squares[tap][2], of.squares[tap][3]);
      }
    }
  };

#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) load();
  Walk at(begin, shape.height, strips.count);
  for (int i = 0; i < count; ++i) {
    AwaitCopyGroups<kStages - 2>();
    // Now all threads' copies of this row are there, and the row before it is no longer read.
    __syncthreads();
    load();
    const uint32_t dy_row = at.stage * kDyRowBytes;
    const uint32_t square_row = (at.slot + warp) % kRing * kSquareRowBytes;
    const auto fragments = [&](int tile) {
      Fragments of;
#pragma unroll
      for (int m = 0; m < kOutputs / 16; ++m) {
        LoadTransposed(of.dy[m], dy_rows[m] + dy_row + tile * kTile * kDyBytes);
      }
#pragma unroll
      for (int tap = 0; tap < kWindow; ++tap) {
        LoadTransposed(of.squares[tap],
                       square_rows[tap] + square_row + tile * kTile * kSquareBytes);
      }
      return of;
    };
    // The next tile is loaded while this one is multiplied.
    Fragments now = fragments(0);
#pragma unroll
    for (int tile = 1; tile < kTiles; ++tile) {
      if (tile >= strips.tiles) break;
      const Fragments next = fragments(tile);
      multiply(now);
      now = next;
    }
    multiply(now);
    at.Advance(shape.height, strips.count);
  }

  // A thread has two values side by side of rows that are 8 apart.
  float* to = partials + (int64_t{blockIdx.x} * kOutputs + lane / 4) * kColumns +
              warp * kWindow * kChannels + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < kOutputs / 16; ++m) {
#pragma unroll
    for (int tap = 0; tap < kWindow; ++tap) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float(&four)[4] = sums[m][tap][half];
        float* here = to + m * 16 * kColumns + tap * kChannels + half * 8;
        *reinterpret_cast<float2*>(here) = {four[0], four[1]};
        *reinterpret_cast<float2*>(here + 8 * kColumns) = {four[2], four[3]};
      }
    }
  }
}

// Forward an output's pixel is a row of a product: of [pixels, taps and channels] by [taps and channels,
// outputs]. A block walks down strips of the image, a few rows at a time, whose squares it keeps in shared
// memory, while those for the next rows are on their way.
//
// A warp has half of the outputs, whose weights stay in its registers, and two of the rows: a square that it
// loads is multiplied for both. cuDNN's convolutions take channels by 64, of which a square has but 16.
constexpr int kForwardWarps = 8;
constexpr int kForwardThreads = 32 * kForwardWarps;
constexpr int kOwnOutputs = kOutputs / 2;    // of a warp
constexpr int kForwardRows = kForwardWarps;  // two for the two halves of the outputs
constexpr int kRowsUnderWindows = kForwardRows + kWindow - 1;
constexpr int kForwardBytes = kRowsUnderWindows * kSquareRowBytes;
constexpr int kForwardSharedBytes = 2 * kForwardBytes;

__host__ __device__ int BlocksOfStrip(const StemShape& shape) {
  return CeilDivide(shape.height, kForwardRows);
}

// kForwardRows rows of a strip, the last ones of which may lie below the image.
struct RowsOfStrip {
  int64_t image;
  int column;  // the first
  int row;     // likewise

  __device__ RowsOfStrip(int64_t index, const StemShape& shape, const Strips& strips) {
    const int of_strip = BlocksOfStrip(shape);
    const int64_t strip = index / of_strip;
    image = strip / strips.count;
    column = static_cast<int>(strip % strips.count) * strips.tiles * kTile;
    row = static_cast<int>(index % of_strip) * kForwardRows;
  }
};

__host__ __device__ int64_t AllRowsOfStrips(const StemShape& shape, const Strips& strips) {
  return shape.count * strips.count * BlocksOfStrip(shape);
}

template <typename T>
__device__ void Convolve(const char* squares, const uint32_t* weight, uint4* y,
                         const StemShape& shape, const Strips& strips) {
  extern __shared__ uint4 shared[];
  const auto buffers = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int half = thread / 32 % 2;
  const int pair = thread / 32 / 2;  // of rows

  // A product's column is an output, in an order that gives a thread eight outputs side by side.
  constexpr int kProducts = kOwnOutputs / 8;
  uint32_t weights[kWindow][kWindow][kProducts][2];
#pragma unroll
  for (int r = 0; r < kWindow; ++r) {
#pragma unroll
    for (int s = 0; s < kWindow; ++s) {
#pragma unroll
      for (int p = 0; p < kProducts; ++p) {
        const int output = half * kOwnOutputs + lane / 8 * 8 + 2 * p + lane / 4 % 2;
        const uint32_t* from =
            weight + ((output * kWindow + r) * kWindow + s) * kChannels / 2 + lane % 4;
        weights[r][s][p][0] = from[0];
        weights[r][s][p][1] = from[4];
      }
    }
  }

  // A thread copies the same pack of each row.
  constexpr int kSquarePacks = kSquareBytes / kPackBytes;
  static_assert(kForwardThreads / kSquarePacks >= kSquaresOfStrip);
  const int square = thread / kSquarePacks;
  const uint32_t square_place = buffers + SquarePlace(square, thread % kSquarePacks);
  const auto load = [&](int64_t index, int buffer) {
    const RowsOfStrip rows(index, shape, strips);
    const int framed_width = shape.width + kWindow - 1;
    const int framed_height = shape.height + kWindow - 1;
    const char* from =
        squares +
        ((rows.image * framed_height + rows.row) * framed_width + rows.column) * kSquareBytes +
        thread * kPackBytes;
    const uint32_t to = square_place + buffer * kForwardBytes;
    if (square < kSquaresOfStrip) {
      const bool is_in_row = rows.column + square < framed_width;
#pragma unroll
      for (int r = 0; r < kRowsUnderWindows; ++r) {
        CopyPack(to + r * kSquareRowBytes, from + int64_t{r} * framed_width * kSquareBytes,
                 is_in_row && rows.row + r < framed_height);
      }
    }
    EndCopyGroup();
  };

  // Where the row is that a thread names of its matrix: a square's pack. Of the four matrices the squares
  // change first.
  uint32_t square_rows[kWindow];
#pragma unroll
  for (int tap = 0; tap < kWindow; ++tap) {
    square_rows[tap] =
        buffers + 2 * pair * kSquareRowBytes + SquarePlace(lane % 16 + tap, lane / 16);
  }

  const int64_t all = AllRowsOfStrips(shape, strips);
  const int64_t begin = all * blockIdx.x / gridDim.x;
  const int64_t end = all * (blockIdx.x + 1) / gridDim.x;
  if (begin < end) load(begin, 0);
  int buffer = 0;
  for (int64_t index = begin; index < end; ++index) {
    AwaitCopyGroups<0>();
    // Now all threads' copies of these rows are there, and the other buffer is no longer read.
    __syncthreads();
    if (index + 1 < end) load(index + 1, 1 - buffer);
    const RowsOfStrip rows(index, shape, strips);
    const int first_row = rows.row + 2 * pair;
    const int tiles = first_row < shape.height ? strips.tiles : 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      float sums[2][kProducts][4] = {};
#pragma unroll
      for (int r = 0; r <= kWindow; ++r) {
#pragma unroll
        for (int s = 0; s < kWindow; ++s) {
          uint32_t pixels[4];
          LoadMatrices(pixels, square_rows[s] + buffer * kForwardBytes + r * kSquareRowBytes +
                                   tile * kTile * kSquareBytes);
#pragma unroll
          for (int p = 0; p < kProducts; ++p) {
            if (r < kWindow) {
              MultiplyAdd<T>(sums[0][p], pixels, weights[r][s][p][0], weights[r][s][p][1]);
            }
            if (r > 0) {
              MultiplyAdd<T>(sums[1][p], pixels, weights[r - 1][s][p][0], weights[r - 1][s][p][1]);
            }
          }
        }
      }
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        const int row = first_row + which;
#pragma unroll
        for (int below = 0; below < 2; ++below) {
          const int column = rows.column + tile * kTile + 8 * below + lane / 4;
          if (row >= shape.height || column >= shape.width) continue;
          Pack<T> outputs;
#pragma unroll
          for (int p = 0; p < kProducts; ++p) {
            outputs.values[2 * p] = FromFloat<T>(sums[which][p][2 * below]);
            outputs.values[2 * p + 1] = FromFloat<T>(sums[which][p][2 * below + 1]);
          }
          const int64_t pixel = (rows.image * shape.height + row) * shape.width + column;
          Store(y, pixel * (kOutputs / 8) + half * (kOwnOutputs / 8) + lane % 4, outputs);
        }
      }
    }
    buffer = 1 - buffer;
  }
}

// Turing has neither these copies nor bfloat16's instructions, and HasStemForward and StemGradientParts say
// so. An `if` that is no constexpr leaves all of the above in use there too.
constexpr int kLeastMajor = 8;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool kHasInstructions = false;
#else
constexpr bool kHasInstructions = true;
#endif

template <typename T>
__global__ void __launch_bounds__(kGradientThreads, kBlocksPerMultiprocessor)
    StemGradient(const char* dy, const char* squares, float* partials, StemShape shape,
                 Strips strips) {
  if (kHasInstructions) SumProducts<T>(dy, squares, partials, shape, strips);
}

template <typename T>
__global__ void __launch_bounds__(kForwardThreads, 1)
    StemForward(const char* squares, const uint32_t* weight, uint4* y, StemShape shape,
                Strips strips) {
  if (kHasInstructions) Convolve<T>(squares, weight, y, shape, strips);
}

}  // namespace

void LaunchSquares(const void* x, void* squares, const SquaresShape& shape, cudaStream_t stream) {
  constexpr int64_t kMostImages = 65535;
  const int packs = shape.framed_channels / Words::kSize;
  const bool are_pictures = shape.channels == kColors && packs == 2;
  const auto kernel = !are_pictures        ? Squares
                      : HasPairs(x, shape) ? SquaresOfPictures<true>
                                           : SquaresOfPictures<false>;
  const int64_t threads =
      int64_t{shape.framed_height} * shape.framed_width * (are_pictures ? 1 : packs);
  const dim3 grid(static_cast<unsigned>(CeilDivide(threads, kThreads)),
                  static_cast<unsigned>(std::min(shape.count, kMostImages)));
  kernel<<<grid, kThreads, 0, stream>>>(static_cast<const uint16_t*>(x),
                                        static_cast<Words*>(squares), shape);
}

void LaunchWeightOfSquares(const void* weight, void* of_squares, const StemWeightShape& shape,
                           cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(CeilDivide(ValuesOf(shape), kThreads));
  WeightOfSquares<<<blocks, kThreads, 0, stream>>>(static_cast<const uint16_t*>(weight),
                                                   static_cast<uint16_t*>(of_squares), shape);
}

bool HasStemForward(const StemShape& shape) {
  return shape.major >= kLeastMajor && shape.outputs == kOutputs &&
         shape.framed_channels == kChannels;
}

void LaunchStemForward(const void* squares, const void* weight, FloatType type, void* y,
                       const StemShape& shape, cudaStream_t stream) {
  const auto kernel =
      type == FloatType::kFloat16 ? StemForward<__half> : StemForward<__nv_bfloat16>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kForwardSharedBytes);
  const Strips strips = StripsOf(shape.width);
  const auto blocks = static_cast<unsigned>(
      std::min<int64_t>(AllRowsOfStrips(shape, strips), shape.multiprocessors));
  kernel<<<blocks, kForwardThreads, kForwardSharedBytes, stream>>>(
      static_cast<const char*>(squares), static_cast<const uint32_t*>(weight),
      static_cast<uint4*>(y), shape, strips);
}

int64_t StemGradientParts(const StemShape& shape) {
  if (!HasStemForward(shape) || shape.height < kLeastHeight) return 0;
  const int64_t rows = shape.count * StripsOf(shape.width).count * shape.height;
  return std::min<int64_t>(rows, int64_t{shape.multiprocessors} * kBlocksPerMultiprocessor);
}

void LaunchStemGradient(const void* dy, const void* squares, FloatType type, float* partials,
                        const StemShape& shape, cudaStream_t stream) {
  const auto kernel =
      type == FloatType::kFloat16 ? StemGradient<__half> : StemGradient<__nv_bfloat16>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  const auto blocks = static_cast<unsigned>(StemGradientParts(shape));
  kernel<<<blocks, kGradientThreads, kSharedBytes, stream>>>(
      static_cast<const char*>(dy), static_cast<const char*>(squares), partials, shape,
      StripsOf(shape.width));
}

void LaunchSumStemGradients(const float* partials, int64_t parts, const SumsTo& to,
                            const StemWeightShape& shape, cudaStream_t stream) {
  SumStemGradients<<<PartialSumBlocks(ValuesOf(shape)), PartialSumThreads(), 0, stream>>>(
      partials, parts, to, shape);
}

}  // namespace lockstep::ops
