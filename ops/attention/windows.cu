#include "base/ceil_divide.h"
#include "ops/attention/windows_kernel.h"
#include "ops/common/pack.cuh"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;
// The number of packs of a thread whose loads are in flight at once.
constexpr int kPacksOfThread = 4;
constexpr int kPacksOfBlock = kThreads * kPacksOfThread;

// Computes the quotient and the remainder of a number n below 2^31 and a divisor from 1 to 2^31 - 1, without a division
// instruction. The quotient is (n + n m / 2^32) / 2^shift, where m is multiplier_, shift is shift_, and 2^32 + m is
// about 2^(32 + shift) / divisor, rounded up (Granlund and Montgomery, 1994, figure 4.1).
class Divisor {
 public:
  explicit Divisor(unsigned divisor) : divisor_(divisor) {
    while ((1U << shift_) < divisor_) ++shift_;
    const uint64_t power = uint64_t{1} << shift_;
    multiplier_ = static_cast<unsigned>(((power - divisor_) << 32) / divisor_ + 1);
  }

  // Replaces `n` by the quotient, and returns the remainder.
  __device__ unsigned Split(unsigned& n) const {
    const unsigned quotient = (__umulhi(n, multiplier_) + n) >> shift_;
    const unsigned rest = n - quotient * divisor_;
    n = quotient;
    return rest;
  }

 private:
  unsigned divisor_;
  unsigned multiplier_;
  unsigned shift_ = 0;
};

struct Layout {
  explicit Layout(const WindowsShape& shape)
      : rows(shape.rows),
        columns(shape.columns),
        height(shape.height),
        width(shape.width),
        image_height(shape.rows * shape.height),
        image_width(shape.columns * shape.width),
        packs(shape.packs),
        size(shape) {}

  Divisor rows, columns, height, width, image_height, image_width, packs;
  WindowsShape size;
};

// Returns the index, in the images, of the pack that has the index `place` in the windows.
__device__ unsigned PlaceInImage(unsigned place, const Layout& layout) {
  const WindowsShape& size = layout.size;
  const unsigned pack = layout.packs.Split(place);
  const unsigned x = layout.width.Split(place);
  const unsigned y = layout.height.Split(place);
  const unsigned column = layout.columns.Split(place);
  const unsigned row = layout.rows.Split(place);
  const unsigned image_height = size.rows * size.height;
  const unsigned image_width = size.columns * size.width;
  unsigned from_top = row * size.height + y + size.down;
  unsigned from_left = column * size.width + x + size.right;
  if (from_top >= image_height) from_top -= image_height;
  if (from_left >= image_width) from_left -= image_width;
  return ((place * image_height + from_top) * image_width + from_left) * size.packs + pack;
}

// Returns the index, in the windows, of the pack that has the index `place` in the images.
__device__ unsigned PlaceInWindows(unsigned place, const Layout& layout) {
  const WindowsShape& size = layout.size;
  const unsigned pack = layout.packs.Split(place);
  unsigned column = layout.image_width.Split(place);
  unsigned row = layout.image_height.Split(place);
  // Pixels to the left of the first window belong to the last column of windows, and pixels above the first window
  // belong to the last row of windows.
  column += column < size.right ? size.columns * size.width - size.right : -size.right;
  row += row < size.down ? size.rows * size.height - size.down : -size.down;
  const unsigned x = layout.width.Split(column);
  const unsigned y = layout.height.Split(row);
  const unsigned window = (place * size.rows + row) * size.columns + column;
  return ((window * size.height + y) * size.width + x) * size.packs + pack;
}

// Copies packs in the order of `to`, so that a warp writes consecutive packs. In `from`, the packs of one pixel are
// consecutive, but packs of adjacent pixels may be far apart.
template <bool kToWindows>
__global__ void __launch_bounds__(kThreads)
    Move(const uint4* __restrict__ from, uint4* __restrict__ to, Layout layout, unsigned packs) {
  const unsigned first = blockIdx.x * kPacksOfBlock + threadIdx.x;
  uint4 moved[kPacksOfThread];
#pragma unroll
  for (int i = 0; i < kPacksOfThread; ++i) {
    const unsigned place = first + i * kThreads;
    if (place >= packs) continue;
    moved[i] = from[kToWindows ? PlaceInImage(place, layout) : PlaceInWindows(place, layout)];
  }
#pragma unroll
  for (int i = 0; i < kPacksOfThread; ++i) {
    const unsigned place = first + i * kThreads;
    if (place < packs) to[place] = moved[i];
  }
}

template <bool kToWindows>
void LaunchMove(const void* from, void* to, const WindowsShape& shape, cudaStream_t stream) {
  const int64_t packs = shape.Packs();
  Move<kToWindows>
      <<<static_cast<unsigned>(CeilDivide(packs, kPacksOfBlock)), kThreads, 0, stream>>>(
          static_cast<const uint4*>(from), static_cast<uint4*>(to), Layout(shape),
          static_cast<unsigned>(packs));
}

}  // namespace

void LaunchToWindows(const void* image, void* windows, const WindowsShape& shape,
                     cudaStream_t stream) {
  LaunchMove<true>(image, windows, shape, stream);
}

void LaunchFromWindows(const void* windows, void* image, const WindowsShape& shape,
                       cudaStream_t stream) {
  LaunchMove<false>(windows, image, shape, stream);
}

}  // namespace lockstep::ops
