// Declares the functions that launch the matrix products whose results are the hidden layer of feed_forward.h and the
// hidden layer's gradient. Each kernel also applies the activation or the activation's derivative to the product. The
// kernels come from CUTLASS and run only on GPUs of compute capability 9.0. All pointers point to device memory and are
// aligned to 16 bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/common/float_type.h"
#include "ops/common/sums_to.h"

namespace lockstep::ops {

struct HiddenShape {
  int64_t rows;
  int64_t width;   // the number of columns of x, or of dy
  int64_t hidden;  // width and hidden are multiples of 8
  int device;
  int multiprocessors;  // the number of multiprocessors of the device
};

// The tensors of inner = x W + bias and hidden = gelu(inner). The matrices hold 16-bit values in row-major order.
struct HiddenForward {
  const void* x;       // [rows, width]
  const void* weight;  // [width, hidden]
  const float* bias;   // [hidden]
  void* inner;         // [rows, hidden]; null if `inner` is not wanted
  void* hidden;        // [rows, hidden]
};

// The tensors of d_inner = (dy V^T) gelu'(inner), where V is `weight` and gelu' is the derivative.
struct HiddenBackward {
  const void* dy;      // [rows, width]
  const void* weight;  // [hidden, width]
  const void* inner;   // [rows, hidden]
  void* d_inner;       // [rows, hidden]
  float* partials;     // scratch memory of HiddenPartials(shape) floats
  SumsTo d_bias;  // [hidden]: the sums over the rows of d_inner, taken before d_inner is rounded
};

// Returns how many tiles the result of LaunchHidden() has. A multiprocessor computes the product for one tile at a
// time.
int64_t HiddenTiles(int64_t rows, int64_t hidden);

int64_t HiddenPartials(const HiddenShape& shape);

// Enqueue the kernels that compute the results of `tensors`. Return null, or CUTLASS's message if CUTLASS fails.
const char* LaunchHidden(const HiddenForward& tensors, FloatType type, const HiddenShape& shape,
                         cudaStream_t stream);
const char* LaunchHiddenBackward(const HiddenBackward& tensors, FloatType type,
                                 const HiddenShape& shape, cudaStream_t stream);

}  // namespace lockstep::ops
