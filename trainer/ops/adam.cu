#include "trainer/ops/adam_kernel.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;

struct Coefficients {
  float beta1, beta2, epsilon, decay;
  float rest1, rest2;    // 1 - beta, which in float32 would be off by 5e-5 for 0.999
  float step_size;       // lr / (1 - beta1^t)
  float square_divisor;  // sqrt(1 - beta2^t)
  float shrink;          // 1 - lr decay
  float grad_divisor;
};

template <bool kDecoupled>
__device__ void Update(float& w, float g, float& m, float& v, const Coefficients& c) {
  g /= c.grad_divisor;
  if (kDecoupled) {
    w *= c.shrink;
  } else {
    g += c.decay * w;
  }
  m = c.beta1 * m + c.rest1 * g;
  v = c.beta2 * v + c.rest2 * g * g;
  w -= c.step_size * m / (sqrtf(v) / c.square_divisor + c.epsilon);
}

// A block for each chunk.
template <bool kDecoupled>
__global__ void AdamKernel(const AdamChunk* chunks, AdamRules rules, const float* lr,
                           const float* updates, const float* skip, const float* grad_scale) {
  if (*skip != 0) return;
  __shared__ Coefficients shared;
  if (threadIdx.x == 0) {
    const double t = *updates;
    shared = {static_cast<float>(rules.beta1),
              static_cast<float>(rules.beta2),
              static_cast<float>(rules.epsilon),
              static_cast<float>(rules.weight_decay),
              static_cast<float>(1 - rules.beta1),
              static_cast<float>(1 - rules.beta2),
              static_cast<float>(*lr / (1 - pow(rules.beta1, t))),
              static_cast<float>(sqrt(1 - pow(rules.beta2, t))),
              static_cast<float>(1 - *lr * rules.weight_decay),
              grad_scale == nullptr ? 1.0F : *grad_scale};
  }
  __syncthreads();
  const Coefficients c = shared;
  const AdamChunk chunk = chunks[blockIdx.x];
  const auto aligned = [](const float* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % sizeof(float4) == 0;
  };
  int64_t scalar_begin = 0;
  if (aligned(chunk.parameter) && aligned(chunk.gradient) && aligned(chunk.mean) &&
      aligned(chunk.mean_square)) {
    const int64_t quads = chunk.elements / 4;
    for (int64_t i = threadIdx.x; i < quads; i += kThreads) {
      float4 w = reinterpret_cast<float4*>(chunk.parameter)[i];
      const float4 g = reinterpret_cast<const float4*>(chunk.gradient)[i];
      float4 m = reinterpret_cast<float4*>(chunk.mean)[i];
      float4 v = reinterpret_cast<float4*>(chunk.mean_square)[i];
      Update<kDecoupled>(w.x, g.x, m.x, v.x, c);
      Update<kDecoupled>(w.y, g.y, m.y, v.y, c);
      Update<kDecoupled>(w.z, g.z, m.z, v.z, c);
      Update<kDecoupled>(w.w, g.w, m.w, v.w, c);
      reinterpret_cast<float4*>(chunk.parameter)[i] = w;
      reinterpret_cast<float4*>(chunk.mean)[i] = m;
      reinterpret_cast<float4*>(chunk.mean_square)[i] = v;
    }
    scalar_begin = 4 * quads;
  }
  for (int64_t i = scalar_begin + threadIdx.x; i < chunk.elements; i += kThreads) {
    Update<kDecoupled>(chunk.parameter[i], chunk.gradient[i], chunk.mean[i], chunk.mean_square[i],
                       c);
  }
}

}  // namespace

void LaunchAdam(const AdamChunk* chunks, int64_t count, const AdamRules& rules, const float* lr,
                const float* updates, const float* skip, const float* grad_scale,
                cudaStream_t stream) {
  if (count == 0) return;
  const auto kernel = rules.decoupled ? AdamKernel<true> : AdamKernel<false>;
  kernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(chunks, rules, lr, updates, skip,
                                                                grad_scale);
}

}  // namespace lockstep::ops
