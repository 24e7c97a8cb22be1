// The kernels of stem_convolution.h.
//
// With squares as LaunchSquares writes them, y[n, i, j, o] = sum over r, s and c of
// squares[n, i + r, j + s, c] weight[o, r, s, c], where a window has 4x4 squares.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/ops/common/float_type.h"
#include "trainer/ops/common/sums_to.h"

namespace lockstep::ops {

struct SquaresShape {
  int64_t count;
  int channels;
  int height;  // of the image, even, as the width is
  int width;
  // Of the squares, with their frame of zeros.
  int framed_height;
  int framed_width;
  int framed_channels;  // a multiple of 8, at least 4 channels
  int frame;            // rows and columns of zeros before the first square
  int64_t strides[4];   // of the image: of counts, channels, rows and columns
};

// Enqueues squares[n, frame + i, frame + j, (2 a + b) channels + c] = x[n, c, 2 i + a, 2 j + b], and zeros
// elsewhere. Both of 16 bits; squares is contiguous as indexed here and begins at a multiple of 16 bytes.
void LaunchSquares(const void* x, void* squares, const SquaresShape& shape, cudaStream_t stream);

// A weight [outputs, channels, 7, 7], and the same for squares: [outputs, 4, 4, framed_channels],
// contiguous.
struct StemWeightShape {
  int64_t outputs;
  int channels;
  int framed_channels;  // as in SquaresShape
  int64_t strides[4];   // of the weight, or of what has its sizes
};

// Enqueues of_squares[o, r, s, (2 a + b) channels + c] = weight[o, c, 2 r + a - 1, 2 s + b - 1],
// and zeros where the weight has no such value. Both of 16 bits.
void LaunchWeightOfSquares(const void* weight, void* of_squares, const StemWeightShape& shape,
                           cudaStream_t stream);

// Of the convolution of squares.
struct StemShape {
  int64_t count;
  int64_t outputs;
  int height;  // of y; squares have 3 rows and columns more
  int width;
  int framed_channels;
  int multiprocessors;  // of the device
  int major;            // the device's compute capability's first number
};

// Whether LaunchStemForward knows this shape, and this device.
bool HasStemForward(const StemShape& shape);

// Enqueues y, with sums in float32. squares, weight and y are of 16 bits, contiguous as indexed above, and
// begin at multiples of 16 bytes.
void LaunchStemForward(const void* squares, const void* weight, FloatType type, void* y,
                       const StemShape& shape, cudaStream_t stream);

// In how many parts LaunchStemGradient sums; 0: it does not know this shape, or this device.
int64_t StemGradientParts(const StemShape& shape);

// Enqueues the sums over n, i and j of dy[n, i, j, o] squares[n, i + r, j + s, c]: each part's to
// partials[part, o, r, s, c]. dy and squares are of 16 bits, contiguous as indexed here, and begin
// at multiples of 16 bytes.
void LaunchStemGradient(const void* dy, const void* squares, FloatType type, float* partials,
                        const StemShape& shape, cudaStream_t stream);

// Enqueues, to `to`, which lies in memory as `shape` says, the parts' sum: the gradient for a
// weight from [parts, outputs, 4, 4, framed_channels] for that of squares.
void LaunchSumStemGradients(const float* partials, int64_t parts, const SumsTo& to,
                            const StemWeightShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
