#include <new>

#include "trainer/ops/fused_update_kernel.h"
#include "trainer/ops/pack.cuh"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;

struct Adam {
  float beta1, beta2, epsilon, decay;
  float rest1, rest2;    // 1 - beta, which in float32 would be off by 5e-5 for 0.999
  float step_size;       // lr / (1 - beta1^t)
  float square_divisor;  // sqrt(1 - beta2^t)
  float shrink;          // 1 - lr decay
  bool decoupled;

  __device__ Adam(const AdamRules& rules, const UpdateScalars& scalars)
      : beta1(static_cast<float>(rules.beta1)),
        beta2(static_cast<float>(rules.beta2)),
        epsilon(static_cast<float>(rules.epsilon)),
        decay(static_cast<float>(rules.weight_decay)),
        rest1(static_cast<float>(1 - rules.beta1)),
        rest2(static_cast<float>(1 - rules.beta2)),
        step_size(static_cast<float>(*scalars.lr / (1 - pow(rules.beta1, *scalars.updates)))),
        square_divisor(static_cast<float>(sqrt(1 - pow(rules.beta2, *scalars.updates)))),
        shrink(static_cast<float>(1 - *scalars.lr * rules.weight_decay)),
        decoupled(rules.decoupled) {}

  __device__ void operator()(float& w, float g, float& m, float& v) const {
    if (decoupled) {
      w *= shrink;
    } else {
      g += decay * w;
    }
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    w -= step_size * m / (sqrtf(v) / square_divisor + epsilon);
  }
};

struct Sgd {
  float lr, momentum, decay;
  bool nesterov;

  __device__ Sgd(const SgdRules& rules, const UpdateScalars& scalars)
      : lr(*scalars.lr),
        momentum(static_cast<float>(rules.momentum)),
        decay(static_cast<float>(rules.weight_decay)),
        nesterov(rules.nesterov) {}

  // Without momentum m is no one's.
  __device__ void operator()(float& w, float g, float& m, float&) const {
    g += decay * w;
    m = momentum * m + g;
    w -= lr * (nesterov ? g + momentum * m : m);
  }
};

__device__ bool IsAbsentOrAligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// The chunk's packs of kSize from element `begin` on.
template <int kSize, typename Rounded, typename Rule>
__device__ void Update(const UpdateChunk& chunk, int64_t begin, float grad_divisor,
                       const Rule& rule) {
  using Floats = Pack<float, kSize>;
  const auto load = [](const float* from, int64_t i) {
    return from == nullptr ? Floats{} : *reinterpret_cast<const Floats*>(from + i);
  };
  const auto store = [](float* to, int64_t i, const Floats& values) {
    if (to != nullptr) *reinterpret_cast<Floats*>(to + i) = values;
  };
  for (int64_t i = begin + int64_t{threadIdx.x} * kSize; i + kSize <= chunk.elements;
       i += int64_t{kThreads} * kSize) {
    Floats w = load(chunk.parameter, i);
    const Floats g = load(chunk.gradient, i);
    Floats first = load(chunk.first, i);
    Floats second = load(chunk.second, i);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      rule(w.values[j], g.values[j] / grad_divisor, first.values[j], second.values[j]);
    }
    store(chunk.parameter, i, w);
    store(chunk.first, i, first);
    store(chunk.second, i, second);
    if (chunk.rounded == nullptr) continue;
    Pack<Rounded, kSize> rounded;
#pragma unroll
    for (int j = 0; j < kSize; ++j) rounded.values[j] = FromFloat<Rounded>(w.values[j]);
    *reinterpret_cast<Pack<Rounded, kSize>*>(static_cast<Rounded*>(chunk.rounded) + i) = rounded;
  }
}

// A block for each chunk.
template <typename Rule, typename Rounded, typename Rules>
__global__ void __launch_bounds__(kThreads)
    UpdateKernel(const UpdateChunk* chunks, Rules rules, UpdateScalars scalars) {
  if (*scalars.skip != 0) return;
  // Powers in float64: once in a block.
  __shared__ __align__(alignof(Rule)) unsigned char memory[sizeof(Rule)];
  if (threadIdx.x == 0) new (memory) Rule(rules, scalars);
  __syncthreads();
  const Rule rule = *reinterpret_cast<const Rule*>(memory);
  const float grad_divisor = scalars.grad_scale == nullptr ? 1.0F : *scalars.grad_scale;
  const UpdateChunk chunk = chunks[blockIdx.x];
  constexpr int kSize = Pack<float>::kSize;
  int64_t begin = 0;
  if (IsAbsentOrAligned(chunk.parameter, sizeof(Pack<float>)) &&
      IsAbsentOrAligned(chunk.gradient, sizeof(Pack<float>)) &&
      IsAbsentOrAligned(chunk.first, sizeof(Pack<float>)) &&
      IsAbsentOrAligned(chunk.second, sizeof(Pack<float>)) &&
      IsAbsentOrAligned(chunk.rounded, sizeof(Pack<Rounded, kSize>))) {
    Update<kSize, Rounded>(chunk, 0, grad_divisor, rule);
    begin = chunk.elements / kSize * kSize;
  }
  Update<1, Rounded>(chunk, begin, grad_divisor, rule);
}

template <typename Rule, typename Rules>
void Launch(const UpdateChunk* chunks, int64_t count, const Rules& rules,
            const UpdateScalars& scalars, FloatType rounded, cudaStream_t stream) {
  if (count == 0) return;
  const auto kernel = rounded == FloatType::kFloat16 ? UpdateKernel<Rule, __half, Rules>
                                                     : UpdateKernel<Rule, __nv_bfloat16, Rules>;
  kernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(chunks, rules, scalars);
}

}  // namespace

void LaunchAdam(const UpdateChunk* chunks, int64_t count, const AdamRules& rules,
                const UpdateScalars& scalars, FloatType rounded, cudaStream_t stream) {
  Launch<Adam>(chunks, count, rules, scalars, rounded, stream);
}

void LaunchSgd(const UpdateChunk* chunks, int64_t count, const SgdRules& rules,
               const UpdateScalars& scalars, FloatType rounded, cudaStream_t stream) {
  Launch<Sgd>(chunks, count, rules, scalars, rounded, stream);
}

}  // namespace lockstep::ops
