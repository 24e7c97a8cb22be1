// The kernels that convert images and weights to squares of 2x2 pixels (stem_convolution_kernel.h), and the functions
// that launch the two matrix products: forward (stem_forward.cuh) and the gradient of the weight (stem_gradient.cuh).
#include <algorithm>

#include "base/ceil_divide.h"
#include "ops/common/pack.cuh"
#include "ops/common/partial_sums.cuh"
#include "ops/convolution/stem_convolution_kernel.h"
#include "ops/convolution/stem_forward.cuh"
#include "ops/convolution/stem_gradient.cuh"
#include "ops/convolution/stem_tiles.cuh"

namespace lockstep::ops {
namespace {

using namespace stem;

constexpr int kThreads = 256;

using Words = Pack<uint16_t>;

// The position of a square's first pixel in an image, and whether the square lies inside of the image.
struct FirstPixel {
  int row;
  int column;
  bool is_inside;

  __device__ FirstPixel(unsigned square, const SquaresShape& shape)
      : row(2 * (static_cast<int>(square / shape.framed_width) - shape.frame)),
        column(2 * (static_cast<int>(square % shape.framed_width) - shape.frame)),
        is_inside(row >= 0 && row < shape.height && column >= 0 && column < shape.width) {}
};

// Converts images to squares. Each thread writes one pack of a square's channels, for every gridDim.y-th image.
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

// Converts images of three channels to squares. Each thread writes one square for every gridDim.y-th image. kPairs says
// whether two adjacent pixels can be loaded as one 32-bit word (HasPairs()).
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

// Returns whether the two adjacent pixels of each row of a square form an aligned 32-bit word in memory.
bool HasPairs(const void* x, const SquaresShape& shape) {
  const auto [of_image, of_channel, of_row, of_column] = shape.strides;
  return of_column == 1 && (of_image | of_channel | of_row) % 2 == 0 &&
         IsAligned(x, sizeof(ushort2));
}

// Returns the number of values of a weight for squares.
__host__ __device__ int64_t ValuesOf(const StemWeightShape& shape) {
  return shape.outputs * kWindow * kWindow * shape.framed_channels;
}

// Returns the offset, in the 7x7 weight, of the element that the weight for squares has at `index`. The result is
// negative if the element at `index` is one of the added zeros.
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

// Adds up partial sums like SumPartials, and writes each sum to its element's place in the gradient of the 7x7 weight.
__global__ void __launch_bounds__(kPartialSlices* kPartialColumns)
    SumStemGradients(const float* partials, int64_t parts, SumsTo to, StemWeightShape shape) {
  const int64_t values = ValuesOf(shape);
  const int64_t index = int64_t{blockIdx.x} * kPartialColumns + threadIdx.x;
  const int64_t offset = index < values ? OffsetInWeight(index, shape) : -1;
  const float sum = SumOfRows(partials + index, offset >= 0 ? parts : 0, values);
  if (threadIdx.y == 0 && offset >= 0) Give(to, offset, sum);
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
  return shape.major >= kMatrixUnitMajor && shape.outputs == kOutputs &&
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
