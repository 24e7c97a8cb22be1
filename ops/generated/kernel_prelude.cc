#include "ops/generated/kernel_prelude.h"

namespace lockstep::ops {

const std::string& KeptText() {
  static const std::string text = R"(
// Returns the factor of dropout for the element at `position`: 0 if 32 random bits are below `threshold`, otherwise
// `scale`. The bits are the first number of the hash pcg4d of M. Jarzynski and M. Olano, Hash Functions for GPU
// Rendering, JCGT 9 (3), 2020.
__device__ inline float Kept(float key, float other_key, unsigned number, unsigned position, unsigned threshold,
                              float scale) {
  unsigned a = position * 1664525u + 1013904223u;
  unsigned b = (unsigned)key * 1664525u + 1013904223u;
  unsigned c = (unsigned)other_key * 1664525u + 1013904223u;
  unsigned d = number * 1664525u + 1013904223u;
  a += b * d;
  b += c * a;
  c += a * b;
  d += b * c;
  a ^= a >> 16;
  b ^= b >> 16;
  d ^= d >> 16;
  return a + b * d < threshold ? 0.0f : scale;
}
)";
  return text;
}

const std::string& ReductionsText() {
  static const std::string text = R"(
struct Add {
  static __device__ inline float First() { return 0; }
  static __device__ inline float Of(float a, float b) { return a + b; }
};
// NaN stays NaN.
struct Greatest {
  static __device__ inline float First() { return -__int_as_float(0x7f800000); }
  static __device__ inline float Of(float a, float b) { return a > b || a != a ? a : b; }
};

// Reduces the values of the threads with one threadIdx.y, whose number is a power of two up to 32, or all of a block. The
// result is right in the thread with threadIdx.x 0.
template <typename By, int kThreads>
__device__ inline float OverRow(float value) {
#pragma unroll
  for (int other = (kThreads < 32 ? kThreads : 32) / 2; other > 0; other /= 2) value = By::Of(value, __shfl_xor_sync(~0u, value, other));
  if (kThreads <= 32) return value;
  __shared__ float parts[(kThreads + 31) / 32];
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < kThreads / 32; ++i) value = By::Of(value, parts[i]);
  }
  return value;
}

// Reduces the values of the threads with one threadIdx.x. The result is right in the threads with threadIdx.y 0.
template <typename By, int kCount, int kX, int kY>
__device__ inline void OverColumn(float (&values)[kCount]) {
  __shared__ float parts[kY * kX * kCount];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) parts[(threadIdx.y * kCount + i) * kX + threadIdx.x] = values[i];
  __syncthreads();
  if (threadIdx.y != 0) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    for (int y = 1; y < kY; ++y) values[i] = By::Of(values[i], parts[(y * kCount + i) * kX + threadIdx.x]);
  }
}
)";
  return text;
}

const std::string& KernelPrelude() {
  static const std::string text = KeptText() + ReductionsText() + R"(
struct Bfloat16 { unsigned short bits; };
struct Float16 { unsigned short bits; };

__device__ inline float Wide(float x) { return x; }
__device__ inline float Wide(bool x) { return x ? 1.0f : 0.0f; }
__device__ inline float Wide(Bfloat16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ inline float Wide(Float16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}
__device__ inline void Narrow(float x, float& to) { to = x; }
__device__ inline void Narrow(float x, Float16& to) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
__device__ inline void Narrow(float x, Bfloat16& to) {
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  const unsigned bits = __float_as_uint(x);
  to.bits = x != x ? 0x7fff : (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
#endif
}

template <typename T, int kCount>
struct Pack { alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) T at[kCount]; };

template <int kCount, typename T>
__device__ inline void Load(const T* from, float (&to)[kCount]) {
  const Pack<T, kCount> pack = *reinterpret_cast<const Pack<T, kCount>*>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = Wide(pack.at[i]);
}
template <int kCount, typename T>
__device__ inline void Store(const float (&from)[kCount], T* to) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount; ++i) Narrow(from[i], pack.at[i]);
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

)";
  return text;
}

}  // namespace lockstep::ops
