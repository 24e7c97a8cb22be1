#include "trainer/ops/normalize_pixels_kernel.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;

// Each thread reads four bytes and writes one float4. `quads` = count / 4, and no quad crosses a
// plane.
__global__ void NormalizeQuads(const uchar4* pixels, const float* scale, const float* shift,
                               float4* out, int64_t quads, int64_t channels,
                               int64_t quads_per_plane) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= quads) return;
  const int64_t c = i / quads_per_plane % channels;
  const float a = scale[c];
  const float b = shift[c];
  const uchar4 p = pixels[i];
  out[i] = {fmaf(p.x, a, b), fmaf(p.y, a, b), fmaf(p.z, a, b), fmaf(p.w, a, b)};
}

__global__ void NormalizeBytes(const uint8_t* pixels, const float* scale, const float* shift,
                               float* out, int64_t count, int64_t channels, int64_t plane) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  const int64_t c = i / plane % channels;
  out[i] = fmaf(pixels[i], scale[c], shift[c]);
}

unsigned Blocks(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

}  // namespace

void LaunchNormalizePixels(const uint8_t* pixels, const float* scale, const float* shift,
                           float* out, int64_t count, int64_t channels, int64_t plane,
                           cudaStream_t stream) {
  if (count == 0) return;
  const bool aligned = reinterpret_cast<uintptr_t>(pixels) % sizeof(uchar4) == 0;
  if (plane % 4 == 0 && aligned) {
    NormalizeQuads<<<Blocks(count / 4), kThreads, 0, stream>>>(
        reinterpret_cast<const uchar4*>(pixels), scale, shift, reinterpret_cast<float4*>(out),
        count / 4, channels, plane / 4);
  } else {
    NormalizeBytes<<<Blocks(count), kThreads, 0, stream>>>(pixels, scale, shift, out, count,
                                                           channels, plane);
  }
}

}  // namespace lockstep::ops
