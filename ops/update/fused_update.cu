#include <new>

#include "ops/common/pack.cuh"
#include "ops/common/warp_sum.cuh"
#include "ops/update/fused_update_kernel.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;

// The tensors that a pass reads or writes.
enum Part : unsigned { kWeights = 1, kGradient = 2, kMoments = 4, kSquares = 8 };

// The base of a pass that does the whole update in one kernel.
struct OnlyPass {
  static constexpr unsigned kReads = kWeights | kGradient | kMoments;
  static constexpr unsigned kWrites = kWeights | kMoments;
};

// The moments of Adam and LAMB: averages of the gradient and of its square.
struct Moments {
  float beta1, beta2, epsilon;
  // 1 - beta1 and 1 - beta2, computed in float64. In float32 the relative error of 1 - 0.999 would be 5e-5.
  float rest1, rest2;
  float square_divisor;  // sqrt(1 - beta2^t)

  template <typename Rules>
  __device__ Moments(const Rules& rules, const float* updates)
      : beta1(static_cast<float>(rules.beta1)),
        beta2(static_cast<float>(rules.beta2)),
        epsilon(static_cast<float>(rules.epsilon)),
        rest1(static_cast<float>(1 - rules.beta1)),
        rest2(static_cast<float>(1 - rules.beta2)),
        square_divisor(static_cast<float>(sqrt(1 - pow(rules.beta2, *updates)))) {}

  __device__ void Average(float g, float& m, float& v) const {
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
  }
  __device__ float Divisor(float v) const { return sqrtf(v) / square_divisor + epsilon; }
};

// This class and the classes below are passes; a pass is the computation of one kernel over all elements. Operator ()
// processes one element: the weight w, the gradient g, and the moments m and v. The argument `lr` is the learning rate,
// multiplied by the parameter's ratio for LAMB and LARS.
struct Adam : OnlyPass, Moments {
  float decay;
  float step_size;  // lr / (1 - beta1^t)
  float shrink;     // 1 - lr decay
  bool decoupled;

  __device__ Adam(const AdamRules& rules, float lr, const float* updates)
      : Moments(rules, updates),
        decay(static_cast<float>(rules.weight_decay)),
        step_size(static_cast<float>(lr / (1 - pow(rules.beta1, *updates)))),
        shrink(static_cast<float>(1 - lr * rules.weight_decay)),
        decoupled(rules.decoupled) {}

  __device__ void operator()(float& w, float g, float& m, float& v) const {
    if (decoupled) {
      w *= shrink;
    } else {
      g += decay * w;
    }
    Average(g, m, v);
    w -= step_size * m / Divisor(v);
  }
};

struct Sgd : OnlyPass {
  float lr, momentum, decay;
  bool nesterov;

  __device__ Sgd(const SgdRules& rules, float lr, const float*)
      : lr(lr),
        momentum(static_cast<float>(rules.momentum)),
        decay(static_cast<float>(rules.weight_decay)),
        nesterov(rules.nesterov) {}

  // Updates w and m. If momentum is 0, `m` is a temporary variable of the caller.
  __device__ void operator()(float& w, float g, float& m, float&) const {
    g += decay * w;
    m = momentum * m + g;
    w -= lr * (nesterov ? g + momentum * m : m);
  }
};

struct LambParts : Moments {
  float lr, decay;
  float mean_factor;  // 1 / (1 - beta1^t)

  __device__ LambParts(const LambRules& rules, float lr, const float* updates)
      : Moments(rules, updates),
        lr(lr),
        decay(static_cast<float>(rules.weight_decay)),
        mean_factor(static_cast<float>(1 / (1 - pow(rules.beta1, *updates)))) {}

  // Returns u of the formula in fused_update.h.
  __device__ float Direction(float w, float m, float v) const {
    return mean_factor * m / Divisor(v) + decay * w;
  }
};

struct Lamb : OnlyPass, LambParts {
  using LambParts::LambParts;

  __device__ void operator()(float& w, float g, float& m, float& v) const {
    Average(g, m, v);
    w -= lr * Direction(w, m, v);
  }
};

struct LambMoments : LambParts {
  using LambParts::LambParts;
  static constexpr unsigned kReads = kWeights | kGradient | kMoments;
  static constexpr unsigned kWrites = kMoments | kSquares;
  float2 squares = {0, 0};  // the thread's sums of w^2 and of u^2

  __device__ void operator()(float w, float g, float& m, float& v) {
    Average(g, m, v);
    const float u = Direction(w, m, v);
    squares.x += w * w;
    squares.y += u * u;
  }
};

// The second pass of LAMB. It moves 16 bytes for each weight: it reads m, v and w, and writes w. If LambMoments wrote u
// (4 bytes) and this pass read u and w and wrote w (12 bytes), the sum would be the same 16 bytes, and u would need as
// much memory as the weights.
struct LambStep : LambParts {
  using LambParts::LambParts;
  static constexpr unsigned kReads = kWeights | kMoments;
  static constexpr unsigned kWrites = kWeights;

  __device__ void operator()(float& w, float, float m, float v) const {
    w -= lr * Direction(w, m, v);
  }
};

struct LarsNorms {
  static constexpr unsigned kReads = kWeights | kGradient;
  static constexpr unsigned kWrites = kSquares;
  float2 squares = {0, 0};  // the thread's sums of w^2 and of g^2

  __device__ LarsNorms(const LarsRules&, float, const float*) {}

  __device__ void operator()(float w, float g, float, float) {
    squares.x += w * w;
    squares.y += g * g;
  }
};

struct Lars : OnlyPass {
  float lr, momentum, decay;

  __device__ Lars(const LarsRules& rules, float lr, const float*)
      : lr(lr),
        momentum(static_cast<float>(rules.momentum)),
        decay(static_cast<float>(rules.weight_decay)) {}

  // Updates w and m. If momentum is 0, `m` is a temporary variable of the caller.
  __device__ void operator()(float& w, float g, float& m, float&) const {
    m = momentum * m + lr * (g + decay * w);
    w -= m;
  }
};

// Returns the sums over the block's threads to each thread, added in a fixed order.
__device__ float2 BlockSums(float2 sums) {
  __shared__ float2 warps[kThreads / 32];
  SumOverWarp(sums.x, sums.y);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sums;
  __syncthreads();
  sums = {0, 0};
  for (const float2& warp : warps) {
    sums.x += warp.x;
    sums.y += warp.y;
  }
  return sums;
}

// Applies `rule` to the chunk in packs of kSize values, beginning at element `begin`. `gradient` points to the chunk's
// gradient, and `grad_divisor` is the number by which the gradient is divided.
template <int kSize, typename Rounded, typename Rule>
__device__ void Update(const UpdateChunk& chunk, const float* gradient, int64_t begin,
                       float grad_divisor, Rule& rule) {
  using Floats = Pack<float, kSize>;
  const auto load = [](unsigned part, const float* from, int64_t i) {
    const bool reads = (Rule::kReads & part) != 0 && from != nullptr;
    return reads ? *reinterpret_cast<const Floats*>(from + i) : Floats{};
  };
  const auto store = [](unsigned part, float* to, int64_t i, const Floats& values) {
    const bool writes = (Rule::kWrites & part) != 0 && to != nullptr;
    if (writes) *reinterpret_cast<Floats*>(to + i) = values;
  };
  for (int64_t i = begin + int64_t{threadIdx.x} * kSize; i + kSize <= chunk.elements;
       i += int64_t{kThreads} * kSize) {
    Floats w = load(kWeights, chunk.parameter, i);
    const Floats g = load(kGradient, gradient, i);
    Floats first = load(kMoments, chunk.first, i);
    Floats second = load(kMoments, chunk.second, i);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      rule(w.values[j], g.values[j] / grad_divisor, first.values[j], second.values[j]);
    }
    store(kWeights, chunk.parameter, i, w);
    store(kMoments, chunk.first, i, first);
    store(kMoments, chunk.second, i, second);
    if constexpr ((Rule::kWrites & kWeights) != 0) {
      if (chunk.rounded == nullptr) continue;
      Pack<Rounded, kSize> rounded;
#pragma unroll
      for (int j = 0; j < kSize; ++j) rounded.values[j] = FromFloat<Rounded>(w.values[j]);
      *reinterpret_cast<Pack<Rounded, kSize>*>(static_cast<Rounded*>(chunk.rounded) + i) = rounded;
    }
  }
}

// The memory that holds the results of one pass for the next pass.
struct Norms {
  float2* partials = nullptr;  // [chunks]: the sums of squares of each chunk
  float* ratios = nullptr;     // [parameters]: the factors of lr; null if all factors are 1
};

// Runs a pass, `Rule`, with one block for each chunk.
template <typename Rule, typename Rounded, typename Rules>
__global__ void __launch_bounds__(kThreads)
    UpdateKernel(const UpdateChunk* chunks, const __grid_constant__ UpdateGradients gradients,
                 Rules rules, UpdateScalars scalars, Norms norms) {
  if (*scalars.skip != 0) return;
  // A second pass processes the chunks backwards, because the chunks that the first pass processed last may still be in
  // the GPU's cache.
  const UpdateChunk chunk =
      chunks[norms.ratios == nullptr ? blockIdx.x : gridDim.x - 1 - blockIdx.x];
  const float* gradient = gradients.memories[chunk.memory] + chunk.gradient;
  // Only one thread of the block constructs the Rule, because the constructor computes powers in float64, which is
  // slow.
  __shared__ __align__(alignof(Rule)) unsigned char memory[sizeof(Rule)];
  if (threadIdx.x == 0) {
    const float ratio = norms.ratios == nullptr ? 1.0F : norms.ratios[chunk.index];
    new (memory) Rule(rules, *scalars.lr * ratio, scalars.updates);
  }
  __syncthreads();
  Rule rule = *reinterpret_cast<const Rule*>(memory);
  const float grad_divisor = scalars.grad_scale == nullptr ? 1.0F : *scalars.grad_scale;
  constexpr int kSize = Pack<float>::kSize;
  int64_t begin = 0;
  if (IsAligned(chunk.parameter, sizeof(Pack<float>)) && IsAligned(gradient, sizeof(Pack<float>)) &&
      IsAligned(chunk.first, sizeof(Pack<float>)) && IsAligned(chunk.second, sizeof(Pack<float>)) &&
      IsAligned(chunk.rounded, sizeof(Pack<Rounded, kSize>))) {
    Update<kSize, Rounded>(chunk, gradient, 0, grad_divisor, rule);
    begin = chunk.elements / kSize * kSize;
  }
  Update<1, Rounded>(chunk, gradient, begin, grad_divisor, rule);
  if constexpr ((Rule::kWrites & kSquares) != 0) {
    const float2 squares = BlockSums(rule.squares);
    if (threadIdx.x == 0) norms.partials[blockIdx.x] = squares;
  }
}

// Computes ratios[p] = above |x| / (|y| + decay |x|) for each parameter p, or 1 if the dividend or the divisor is 0.
// |x|^2 and |y|^2 are the sums of Norms::partials over the parameter's chunks. Each block processes one parameter.
__global__ void __launch_bounds__(kThreads)
    RatioKernel(const int64_t* ends, float above, float decay, const float* skip, Norms norms) {
  if (*skip != 0) return;
  const int64_t begin = blockIdx.x == 0 ? 0 : ends[blockIdx.x - 1];
  float2 squares = {0, 0};
  for (int64_t i = begin + threadIdx.x; i < ends[blockIdx.x]; i += kThreads) {
    squares.x += norms.partials[i].x;
    squares.y += norms.partials[i].y;
  }
  squares = BlockSums(squares);
  if (threadIdx.x != 0) return;
  const float dividend = above * sqrtf(squares.x);
  const float divisor = sqrtf(squares.y) + decay * sqrtf(squares.x);
  norms.ratios[blockIdx.x] = dividend > 0 && divisor > 0 ? dividend / divisor : 1;
}

template <typename Rule, typename Rules>
void Launch(const UpdateTable& table, const UpdateGradients& gradients, const Rules& rules,
            const UpdateScalars& scalars, const Norms& norms, cudaStream_t stream) {
  const auto kernel = table.rounded == FloatType::kFloat16
                          ? UpdateKernel<Rule, __half, Rules>
                          : UpdateKernel<Rule, __nv_bfloat16, Rules>;
  kernel<<<static_cast<unsigned>(table.count), kThreads, 0, stream>>>(table.chunks, gradients,
                                                                      rules, scalars, norms);
}

// Enqueues the pass Measure, then RatioKernel with `above` and `decay`, and then the pass Step with the ratios.
template <typename Measure, typename Step, typename Rules>
void LaunchByNorms(const UpdateTable& table, const UpdateGradients& gradients, const Rules& rules,
                   const UpdateScalars& scalars, double above, double decay, float* memory,
                   cudaStream_t stream) {
  auto* partials = reinterpret_cast<float2*>(memory);
  float* ratios = memory + 2 * table.count;
  Launch<Measure>(table, gradients, rules, scalars, {.partials = partials}, stream);
  RatioKernel<<<static_cast<unsigned>(table.parameters), kThreads, 0, stream>>>(
      table.ends, static_cast<float>(above), static_cast<float>(decay), scalars.skip,
      {.partials = partials, .ratios = ratios});
  Launch<Step>(table, gradients, rules, scalars, {.ratios = ratios}, stream);
}

}  // namespace

void LaunchAdam(const UpdateTable& table, const UpdateGradients& gradients, const AdamRules& rules,
                const UpdateScalars& scalars, cudaStream_t stream) {
  if (table.count > 0) Launch<Adam>(table, gradients, rules, scalars, {}, stream);
}

void LaunchSgd(const UpdateTable& table, const UpdateGradients& gradients, const SgdRules& rules,
               const UpdateScalars& scalars, cudaStream_t stream) {
  if (table.count > 0) Launch<Sgd>(table, gradients, rules, scalars, {}, stream);
}

void LaunchLamb(const UpdateTable& table, const UpdateGradients& gradients, const LambRules& rules,
                const UpdateScalars& scalars, float* norms, cudaStream_t stream) {
  if (table.count == 0) return;
  if (rules.adapts) {
    LaunchByNorms<LambMoments, LambStep>(table, gradients, rules, scalars, 1, 0, norms, stream);
  } else {
    Launch<Lamb>(table, gradients, rules, scalars, {}, stream);
  }
}

void LaunchLars(const UpdateTable& table, const UpdateGradients& gradients, const LarsRules& rules,
                const UpdateScalars& scalars, float* norms, cudaStream_t stream) {
  if (table.count == 0) return;
  if (rules.adapts) {
    LaunchByNorms<LarsNorms, Lars>(table, gradients, rules, scalars, rules.trust,
                                   rules.weight_decay, norms, stream);
  } else {
    Launch<Lars>(table, gradients, rules, scalars, {}, stream);
  }
}

}  // namespace lockstep::ops
