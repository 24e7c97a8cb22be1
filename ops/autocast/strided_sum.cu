#include <cstdint>

#include "base/ceil_divide.h"
#include "ops/autocast/strided_sum_kernel.h"
#include "ops/common/floats.cuh"
#include "ops/common/pack.cuh"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;

template <typename T, bool kAdds>
__global__ void __launch_bounds__(kThreads)
    StridedSum(const void* a, const void* b, void* to, StridedPacks shape) {
  const int pack = blockIdx.x * kThreads + threadIdx.x;
  if (pack >= shape.packs) return;
  int64_t of_a = 0, of_b = 0, of_to = 0;
  int rest = pack;
#pragma unroll
  for (int k = 0; k < StridedPacks::kMostDims; ++k) {
    const int i = shape.dims - 1 - k;
    if (i < 0) break;
    const int next = rest / shape.sizes[i];
    const int index = i == 0 ? rest : rest - next * shape.sizes[i];
    rest = next;
    of_a += index * shape.a_strides[i];
    if (kAdds) of_b += index * shape.b_strides[i];
    of_to += index * shape.to_strides[i];
  }
  const uint4 words = Load(a, of_a);
  if constexpr (kAdds) {
    Floats<8> sum = ToFloats<T>(words);
    const Floats<8> more = ToFloats<T>(Load(b, of_b));
#pragma unroll
    for (int j = 0; j < 8; ++j) sum.values[j] += more.values[j];
    Store(to, of_to, FromFloats<T>(sum));
  } else {
    static_cast<uint4*>(to)[of_to] = words;
  }
}

}  // namespace

void LaunchStridedSum(const void* a, const void* b, void* to, FloatType type,
                      const StridedPacks& shape, cudaStream_t stream) {
  const int blocks = CeilDivide(shape.packs, kThreads);
  With16Bits(type, [&](auto value) {
    using T = decltype(value);
    if (b != nullptr) {
      StridedSum<T, true><<<blocks, kThreads, 0, stream>>>(a, b, to, shape);
    } else {
      StridedSum<T, false><<<blocks, kThreads, 0, stream>>>(a, b, to, shape);
    }
  });
}

}  // namespace lockstep::ops
