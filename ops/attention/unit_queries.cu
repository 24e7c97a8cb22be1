#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/ceil_divide.h"
#include "ops/attention/unit_queries_kernel.h"
#include "ops/common/pack.cuh"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAllLanes = ~0U;

enum Part : unsigned { kQueries, kKeys, kValues, kParts };

// The head to which a pack belongs.
struct Place {
  unsigned token;
  Part part;
  unsigned head;
};

// Returns the place of the pack with this index, where kPacks packs make a head.
template <int kPacks>
__device__ Place PlaceOf(unsigned pack, unsigned heads) {
  const unsigned vector = pack / kPacks;
  const unsigned row = vector / heads;
  return {
      .token = row / kParts, .part = static_cast<Part>(row % kParts), .head = vector - row * heads};
}

template <typename T>
__device__ void LoadFloats(const void* values, unsigned pack, float (&floats)[kUnitPackValues]) {
  const Pack<T> loaded = Unpack<T>(Load(values, pack));
#pragma unroll
  for (int i = 0; i < kUnitPackValues; ++i) floats[i] = ToFloat(loaded.values[i]);
}

template <typename T>
__device__ void StoreFloats(void* values, unsigned pack, const float (&floats)[kUnitPackValues]) {
  Pack<T> rounded;
#pragma unroll
  for (int i = 0; i < kUnitPackValues; ++i) rounded.values[i] = FromFloat<T>(floats[i]);
  Store(values, pack, rounded);
}

// Returns the sum of a x b over the head of this thread's pack. The kPacks threads of a head are adjacent lanes of one
// warp. All lanes of the warp must call this function.
template <int kPacks>
__device__ float SumOverHead(const float (&a)[kUnitPackValues], const float (&b)[kUnitPackValues]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kUnitPackValues; ++i) sum = fmaf(a[i], b[i], sum);
#pragma unroll
  for (int distance = 1; distance < kPacks; distance *= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  return sum;
}

// Each thread computes one pack. The threads beyond the last pack compute the last pack, too, because each lane of a
// warp takes part in the sums, and store nothing.
template <typename T, int kPacks>
__global__ void __launch_bounds__(kThreads)
    Forward(UnitQueriesForward tensors, unsigned heads, unsigned packs, float least) {
  const unsigned own = blockIdx.x * kThreads + threadIdx.x;
  const unsigned pack = min(own, packs - 1);
  const Place place = PlaceOf<kPacks>(pack, heads);
  float x[kUnitPackValues];
  LoadFloats<T>(tensors.qkv, pack, x);
  const float length = fmaxf(sqrtf(SumOverHead<kPacks>(x, x)), least);
  const float scale = place.part == kQueries ? tensors.scale[place.head] : 1;
  const float factor = place.part == kValues ? 1 : scale / length;
#pragma unroll
  for (int i = 0; i < kUnitPackValues; ++i) x[i] *= factor;
  if (own < packs) StoreFloats<T>(tensors.out, pack, x);
}

// With u = x / |x| and y = scale u, the gradients are dx = scale (dy - u (u dy)) / |x| and dscale = u dy. A vector
// shorter than `least` is x / least, a product with a constant.
template <typename T, int kPacks>
__global__ void __launch_bounds__(kThreads)
    Backward(UnitQueriesBackward tensors, unsigned heads, unsigned packs, float least) {
  const unsigned own = blockIdx.x * kThreads + threadIdx.x;
  const unsigned pack = min(own, packs - 1);
  const Place place = PlaceOf<kPacks>(pack, heads);
  float x[kUnitPackValues];
  float d[kUnitPackValues];
  LoadFloats<T>(tensors.qkv, pack, x);
  LoadFloats<T>(tensors.d_out, pack, d);
  const float length = sqrtf(SumOverHead<kPacks>(x, x));
  const float inverse = 1 / fmaxf(length, least);
  const float along = SumOverHead<kPacks>(x, d) * inverse;  // u dy
  const float turned = length < least ? 0 : along * inverse;
  if (place.part != kValues) {
    const float scale = place.part == kQueries ? tensors.scale[place.head] : 1;
#pragma unroll
    for (int i = 0; i < kUnitPackValues; ++i) {
      d[i] = scale * inverse * fmaf(-turned, x[i], d[i]);
    }
  }
  if (own >= packs) return;
  StoreFloats<T>(tensors.d_qkv, pack, d);
  if (tensors.d_scales != nullptr && place.part == kQueries && pack % kPacks == 0) {
    tensors.d_scales[int64_t{place.token} * heads + place.head] = along;
  }
}

// Calls launch(value, packs) with a value of the C++ type that belongs to `type`, and with the number of packs of a head
// as a std::integral_constant.
template <typename Launch>
void WithTypeAndPacks(FloatType type, unsigned packs, const Launch& launch) {
  With16Bits(type, [&](auto value) {
    switch (packs) {
      case 1:
        return launch(value, std::integral_constant<int, 1>());
      case 2:
        return launch(value, std::integral_constant<int, 2>());
      case 4:
        return launch(value, std::integral_constant<int, 4>());
      case 8:
        return launch(value, std::integral_constant<int, 8>());
      case 16:
        return launch(value, std::integral_constant<int, 16>());
      default:
        return launch(value, std::integral_constant<int, kMostUnitPacks>());
    }
  });
}

unsigned Blocks(unsigned packs) {
  return static_cast<unsigned>(CeilDivide(int64_t{packs}, kThreads));
}

unsigned PacksOf(const UnitQueriesShape& shape) {
  return static_cast<unsigned>(shape.tokens * kParts * shape.heads * shape.packs);
}

}  // namespace

void LaunchUnitQueries(const UnitQueriesForward& tensors, FloatType type,
                       const UnitQueriesShape& shape, cudaStream_t stream) {
  const unsigned packs = PacksOf(shape);
  WithTypeAndPacks(type, shape.packs, [&](auto value, auto of_head) {
    Forward<decltype(value), decltype(of_head)::value>
        <<<Blocks(packs), kThreads, 0, stream>>>(tensors, shape.heads, packs, shape.least);
  });
}

void LaunchUnitQueriesBackward(const UnitQueriesBackward& tensors, FloatType type,
                               const UnitQueriesShape& shape, cudaStream_t stream) {
  const unsigned packs = PacksOf(shape);
  WithTypeAndPacks(type, shape.packs, [&](auto value, auto of_head) {
    Backward<decltype(value), decltype(of_head)::value>
        <<<Blocks(packs), kThreads, 0, stream>>>(tensors, shape.heads, packs, shape.least);
  });
}

}  // namespace lockstep::ops
