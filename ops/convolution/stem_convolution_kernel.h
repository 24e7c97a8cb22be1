// Declares the functions that launch the kernels of stem_convolution.h.
//
// A square is a block of 2x2 pixels of the image, and LaunchSquares() writes the squares. The convolution of squares is
// y[n, i, j, o] = sum over r, s and c of squares[n, i + r, j + s, c] weight[o, r, s, c], where a window has 4x4
// squares.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"
#include "ops/common/sums_to.h"

namespace lockstep::ops {

struct SquaresShape {
  int64_t count;
  int channels;
  int height;  // the height and the width of an image in pixels, which are even
  int width;
  // The numbers of rows and columns of squares, including the frame of squares of zeros around the image.
  int framed_height;
  int framed_width;
  int framed_channels;  // a multiple of 8, and at least 4 * channels
  int frame;            // the number of rows, and of columns, of squares of zeros before the image
  int64_t strides[4];   // the image's strides between samples, channels, rows and columns
};

// Enqueues the kernel that computes squares[n, frame + i, frame + j, (2 a + b) channels + c] = x[n, c, 2 i + a, 2 j +
// b], and sets all other elements of `squares` to 0. Both tensors have 16 bits. `squares` is contiguous in the order of
// these indices and begins at a multiple of 16 bytes.
void LaunchSquares(const void* x, void* squares, const SquaresShape& shape, cudaStream_t stream);

// The sizes of a weight [outputs, channels, 7, 7], and of the contiguous weight for squares, [outputs, 4, 4,
// framed_channels].
struct StemWeightShape {
  int64_t outputs;
  int channels;
  int framed_channels;  // SquaresShape::framed_channels
  int64_t strides[4];   // the strides of a tensor with the sizes of the 7x7 weight
};

// Enqueues the kernel that computes of_squares[o, r, s, (2 a + b) channels + c] = weight[o, c, 2 r + a - 1, 2 s + b -
// 1], and sets of_squares to 0 where the weight has no such element. Both tensors have 16 bits.
void LaunchWeightOfSquares(const void* weight, void* of_squares, const StemWeightShape& shape,
                           cudaStream_t stream);

// The shape of the convolution of squares.
struct StemShape {
  int64_t count;
  int64_t outputs;
  int height;  // the height of y; there are height + 3 rows of squares
  int width;
  int framed_channels;
  int multiprocessors;  // the number of multiprocessors of the device
  int major;            // the first number of the device's compute capability
};

// Returns whether LaunchStemForward supports this shape and this device.
bool HasStemForward(const StemShape& shape);

// Enqueues the kernel that computes y, with float32 sums. squares, weight and y have 16 bits, are contiguous in the
// order of the indices above, and begin at multiples of 16 bytes.
void LaunchStemForward(const void* squares, const void* weight, FloatType type, void* y,
                       const StemShape& shape, cudaStream_t stream);

// Returns in how many parts LaunchStemGradient() computes the gradient. Returns 0 if LaunchStemGradient() does not
// support this shape or this device.
int64_t StemGradientParts(const StemShape& shape);

// Enqueues the kernel that computes the sums over n, i and j of dy[n, i, j, o] squares[n, i + r, j + s, c]. Each part
// writes its sums to partials[part, o, r, s, c]. dy and squares have 16 bits, are contiguous in the order of these
// indices, and begin at multiples of 16 bytes.
void LaunchStemGradient(const void* dy, const void* squares, FloatType type, float* partials,
                        const StemShape& shape, cudaStream_t stream);

// Enqueues the kernel that sums `partials`, [parts, outputs, 4, 4, framed_channels], over the parts. The sums are the
// gradient of the weight for squares. The kernel converts this gradient to the gradient of the 7x7 weight, and writes
// the gradient of the 7x7 weight to `to` with the strides of `shape`.
void LaunchSumStemGradients(const float* partials, int64_t parts, const SumsTo& to,
                            const StemWeightShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
