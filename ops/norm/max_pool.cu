#include <algorithm>
#include <type_traits>

#include "base/ceil_divide.h"
#include "ops/common/pack.cuh"
#include "ops/norm/max_pool_kernel.h"

namespace lockstep::ops {
namespace {

// Each thread processes one pack of channels of one pixel, in every gridDim.y-th image.
constexpr int kThreads = 256;

// The position of a pack in an image.
struct Place {
  unsigned row;
  unsigned column;
  unsigned pack;
};

__device__ Place PlaceOf(unsigned index, unsigned packs, unsigned width) {
  const unsigned pixel = index / packs;
  return {pixel / width, pixel % width, index % packs};
}

template <typename T, int kWindow>
__global__ void __launch_bounds__(kThreads)
    Forward(const Pack<T>* x, Pack<T>* y, Pack<uint8_t, Pack<T>::kSize>* positions,
            MaxPoolShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  const unsigned packs = shape.channels / kSize;
  const unsigned pooled = shape.pooled_height * shape.pooled_width * packs;
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= pooled) return;
  const Place place = PlaceOf(index, packs, shape.pooled_width);
  const int top = static_cast<int>(place.row) * shape.stride - shape.padding;
  const int left = static_cast<int>(place.column) * shape.stride - shape.padding;
  for (int64_t image = blockIdx.y; image < shape.count; image += gridDim.y) {
    const Pack<T>* from = x + image * shape.height * shape.width * packs + place.pack;
    Pack<T> values[kWindow * kWindow];
    bool is_inside[kWindow * kWindow];
#pragma unroll
    for (int at = 0; at < kWindow * kWindow; ++at) {
      const int row = top + at / kWindow;
      const int column = left + at % kWindow;
      is_inside[at] = row >= 0 && row < shape.height && column >= 0 && column < shape.width;
      if (is_inside[at]) values[at] = from[(int64_t{row} * shape.width + column) * packs];
    }
    Pack<T> greatest;
    Pack<uint8_t, kSize> position;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      float most = 0;
      int of_most = -1;
#pragma unroll
      for (int at = 0; at < kWindow * kWindow; ++at) {
        if (!is_inside[at]) continue;
        const float value = ToFloat(values[at].values[i]);
        if (of_most < 0 || value > most || isnan(value)) {
          most = value;
          of_most = at;
        }
      }
      greatest.values[i] = FromFloat<T>(most);
      position.values[i] = static_cast<uint8_t>(of_most);
    }
    y[image * pooled + index] = greatest;
    positions[image * pooled + index] = position;
  }
}

template <typename T, int kWindow>
__global__ void __launch_bounds__(kThreads)
    Backward(const Pack<T>* dy, const Pack<uint8_t, Pack<T>::kSize>* positions, AddedGradient added,
             Pack<T>* dx, MaxPoolShape shape) {
  constexpr int kSize = Pack<T>::kSize;
  const unsigned packs = shape.channels / kSize;
  const unsigned pixels = shape.height * shape.width * packs;
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= pixels) return;
  const Place place = PlaceOf(index, packs, shape.width);
  const int row = static_cast<int>(place.row) + shape.padding;
  const int column = static_cast<int>(place.column) + shape.padding;
  // The rows and columns of the windows that contain this pixel.
  const int first_row = max(0, (row - kWindow + shape.stride) / shape.stride);
  const int last_row = min(shape.pooled_height - 1, row / shape.stride);
  const int first_column = max(0, (column - kWindow + shape.stride) / shape.stride);
  const int last_column = min(shape.pooled_width - 1, column / shape.stride);
  const int64_t pooled = int64_t{shape.pooled_height} * shape.pooled_width * packs;
  for (int64_t image = blockIdx.y; image < shape.count; image += gridDim.y) {
    float sums[kSize] = {};
    if (added.images != nullptr) {
      const int64_t pixel = image * shape.height * shape.width + index / packs;
      const Pack<T> more = static_cast<const Pack<T>*>(
          added.images)[pixel * (added.pixel_stride / kSize) + place.pack];
#pragma unroll
      for (int k = 0; k < kSize; ++k) sums[k] = ToFloat(more.values[k]);
    }
    for (int i = first_row; i <= last_row; ++i) {
      for (int j = first_column; j <= last_column; ++j) {
        const int64_t at =
            image * pooled + (int64_t{i} * shape.pooled_width + j) * packs + place.pack;
        const int own = (row - i * shape.stride) * kWindow + column - j * shape.stride;
        const Pack<T> gradient = dy[at];
        const Pack<uint8_t, kSize> position = positions[at];
#pragma unroll
        for (int k = 0; k < kSize; ++k) {
          if (position.values[k] == own) sums[k] += ToFloat(gradient.values[k]);
        }
      }
    }
    Pack<T> result;
#pragma unroll
    for (int k = 0; k < kSize; ++k) result.values[k] = FromFloat<T>(sums[k]);
    dx[image * pixels + index] = result;
  }
}

// Returns a grid with enough threads in x for all packs of an image, and with y = the number of images, up to
// kMostImages.
dim3 Grid(int64_t pixels, int packs, int64_t count) {
  constexpr int64_t kMostImages = 65535;
  return {static_cast<unsigned>(CeilDivide(pixels * packs, kThreads)),
          static_cast<unsigned>(std::min(count, kMostImages))};
}

// Calls launch() with the window's size as a std::integral_constant.
template <typename Launch>
void WithWindow(int window, const Launch& launch) {
  if (window == 2) return launch(std::integral_constant<int, 2>());
  return launch(std::integral_constant<int, 3>());
}

}  // namespace

void LaunchMaxPool(const void* x, void* y, uint8_t* positions, FloatType type,
                   const MaxPoolShape& shape, cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using P = Pack<decltype(zero)>;
    const dim3 grid = Grid(int64_t{shape.pooled_height} * shape.pooled_width,
                           shape.channels / P::kSize, shape.count);
    WithWindow(shape.window, [&](auto window) {
      Forward<decltype(zero), window.value><<<grid, kThreads, 0, stream>>>(
          static_cast<const P*>(x), static_cast<P*>(y),
          reinterpret_cast<Pack<uint8_t, P::kSize>*>(positions), shape);
    });
  });
}

void LaunchMaxPoolBackward(const void* dy, const uint8_t* positions, const AddedGradient& added,
                           void* dx, FloatType type, const MaxPoolShape& shape,
                           cudaStream_t stream) {
  WithType(type, [&](auto zero) {
    using P = Pack<decltype(zero)>;
    const dim3 grid =
        Grid(int64_t{shape.height} * shape.width, shape.channels / P::kSize, shape.count);
    WithWindow(shape.window, [&](auto window) {
      Backward<decltype(zero), window.value><<<grid, kThreads, 0, stream>>>(
          static_cast<const P*>(dy), reinterpret_cast<const Pack<uint8_t, P::kSize>*>(positions),
          added, static_cast<P*>(dx), shape);
    });
  });
}

}  // namespace lockstep::ops
