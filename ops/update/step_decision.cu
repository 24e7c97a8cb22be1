#include "ops/update/step_decision_kernel.h"

namespace lockstep::ops {
namespace {

__global__ void DecideKernel(float* values, double* figures, const float* sums, const float* norm,
                             StepRules rules) {
  Decide(values, figures, sums, norm, rules);
}

__global__ void JudgeKernel(double* figures, const float* norm) { Judge(figures, *norm); }

// Returns the time of the GPU's own clock in seconds.
__device__ double GpuSeconds() {
  uint64_t ns = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return 1e-9 * static_cast<double>(ns);
}

__global__ void BeginWaitKernel(double* figures) { figures[kWaitBegan] = GpuSeconds(); }

__global__ void EndWaitKernel(double* figures) {
  figures[kWaitedS] += GpuSeconds() - figures[kWaitBegan];
}

}  // namespace

void LaunchBeginWait(double* figures, cudaStream_t stream) {
  BeginWaitKernel<<<1, 1, 0, stream>>>(figures);
}

void LaunchEndWait(double* figures, cudaStream_t stream) {
  EndWaitKernel<<<1, 1, 0, stream>>>(figures);
}

void LaunchDecide(float* values, double* figures, const float* sums, const float* norm,
                  const StepRules& rules, cudaStream_t stream) {
  DecideKernel<<<1, 1, 0, stream>>>(values, figures, sums, norm, rules);
}

void LaunchJudge(double* figures, const float* norm, cudaStream_t stream) {
  JudgeKernel<<<1, 1, 0, stream>>>(figures, norm);
}

}  // namespace lockstep::ops
