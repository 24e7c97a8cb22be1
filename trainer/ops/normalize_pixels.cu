#include "trainer/ops/normalize_pixels_kernel.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;

// Index is the narrowest type that counts the bytes: divisions are what the kernel's speed hangs on.

// Each thread reads four bytes and writes one float4. `quads` = count / 4.
template <typename Index>
__global__ void NormalizeQuads(const uchar4* pixels, const float* scale, const float* shift,
                               float4* out, Index quads, Index channels, Index run) {
  const Index i = blockIdx.x * Index{kThreads} + threadIdx.x;
  if (i >= quads) return;
  const auto normalize = [&](uint8_t pixel, Index at) {
    const Index c = at / run % channels;
    return fmaf(pixel, scale[c], shift[c]);
  };
  const uchar4 p = pixels[i];
  out[i] = {normalize(p.x, 4 * i), normalize(p.y, 4 * i + 1), normalize(p.z, 4 * i + 2),
            normalize(p.w, 4 * i + 3)};
}

template <typename Index>
__global__ void NormalizeBytes(const uint8_t* pixels, const float* scale, const float* shift,
                               float* out, Index count, Index channels, Index run) {
  const Index i = blockIdx.x * Index{kThreads} + threadIdx.x;
  if (i >= count) return;
  const Index c = i / run % channels;
  out[i] = fmaf(pixels[i], scale[c], shift[c]);
}

unsigned Blocks(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <typename Index>
void Launch(const uint8_t* pixels, const float* scale, const float* shift, float* out, Index count,
            Index channels, Index run, cudaStream_t stream) {
  const bool aligned = reinterpret_cast<uintptr_t>(pixels) % sizeof(uchar4) == 0;
  if (count % 4 == 0 && aligned) {
    NormalizeQuads<Index><<<Blocks(count / 4), kThreads, 0, stream>>>(
        reinterpret_cast<const uchar4*>(pixels), scale, shift, reinterpret_cast<float4*>(out),
        count / 4, channels, run);
  } else {
    NormalizeBytes<Index>
        <<<Blocks(count), kThreads, 0, stream>>>(pixels, scale, shift, out, count, channels, run);
  }
}

}  // namespace

void LaunchNormalizePixels(const uint8_t* pixels, const float* scale, const float* shift,
                           float* out, int64_t count, int64_t channels, int64_t run,
                           cudaStream_t stream) {
  if (count == 0) return;
  if (count <= INT32_MAX) {
    Launch<uint32_t>(pixels, scale, shift, out, count, channels, run, stream);
  } else {
    Launch<int64_t>(pixels, scale, shift, out, count, channels, run, stream);
  }
}

}  // namespace lockstep::ops
