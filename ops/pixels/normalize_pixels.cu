#include "base/ceil_divide.h"
#include "ops/common/pack.cuh"
#include "ops/pixels/normalize_pixels_kernel.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;

// In the kernels below, Index is a type of 32 bits if there are fewer than 2^31 bytes, and a type of 64 bits otherwise.
// Divisions limit the kernels' speed, so each thread divides only once by `run` and by `channels`.

// Normalises four bytes in each thread. `quads` is the number of groups of four bytes.
template <typename T, typename Index>
__global__ void NormalizeQuads(const uchar4* pixels, const float* scale, const float* shift,
                               Pack<T, 4>* out, Index quads, Index channels, Index run) {
  const Index i = blockIdx.x * Index{kThreads} + threadIdx.x;
  if (i >= quads) return;
  const Index runs = 4 * i / run;
  Index place = 4 * i - runs * run;
  Index c = runs % channels;
  const auto normalize = [&](uint8_t pixel) {
    const float number = fmaf(pixel, scale[c], shift[c]);
    if (++place == run) {
      place = 0;
      if (++c == channels) c = 0;
    }
    return FromFloat<T>(number);
  };
  const uchar4 p = pixels[i];
  Pack<T, 4> numbers;
  numbers.values[0] = normalize(p.x);
  numbers.values[1] = normalize(p.y);
  numbers.values[2] = normalize(p.z);
  numbers.values[3] = normalize(p.w);
  out[i] = numbers;
}

template <typename T, typename Index>
__global__ void NormalizeBytes(const uint8_t* pixels, const float* scale, const float* shift,
                               T* out, Index count, Index channels, Index run) {
  const Index i = blockIdx.x * Index{kThreads} + threadIdx.x;
  if (i >= count) return;
  const Index c = i / run % channels;
  out[i] = FromFloat<T>(fmaf(pixels[i], scale[c], shift[c]));
}

unsigned Blocks(int64_t threads) { return static_cast<unsigned>(CeilDivide(threads, kThreads)); }

template <typename T, typename Index>
void Launch(const uint8_t* pixels, const float* scale, const float* shift, T* out, Index count,
            Index channels, Index run, cudaStream_t stream) {
  if (count % 4 == 0 && IsAligned(pixels, sizeof(uchar4))) {
    NormalizeQuads<T, Index><<<Blocks(count / 4), kThreads, 0, stream>>>(
        reinterpret_cast<const uchar4*>(pixels), scale, shift, reinterpret_cast<Pack<T, 4>*>(out),
        count / 4, channels, run);
  } else {
    NormalizeBytes<T, Index>
        <<<Blocks(count), kThreads, 0, stream>>>(pixels, scale, shift, out, count, channels, run);
  }
}

}  // namespace

void LaunchNormalizePixels(const uint8_t* pixels, const float* scale, const float* shift, void* out,
                           FloatType type, int64_t count, int64_t channels, int64_t run,
                           cudaStream_t stream) {
  if (count == 0) return;
  WithType(type, [&](auto zero) {
    using T = decltype(zero);
    auto* numbers = static_cast<T*>(out);
    if (count <= INT32_MAX) {
      Launch<T, uint32_t>(pixels, scale, shift, numbers, count, channels, run, stream);
    } else {
      Launch<T, int64_t>(pixels, scale, shift, numbers, count, channels, run, stream);
    }
  });
}

}  // namespace lockstep::ops
