#include "trainer/ops/update/step_decision_kernel.h"

namespace lockstep::ops {
namespace {

__global__ void DecideKernel(float* values, double* figures, const float* sums, const float* norm,
                             StepRules rules) {
  Decide(values, figures, sums, norm, rules);
}

__global__ void JudgeKernel(double* figures, const float* norm) { Judge(figures, *norm); }

}  // namespace

void LaunchDecide(float* values, double* figures, const float* sums, const float* norm,
                  const StepRules& rules, cudaStream_t stream) {
  DecideKernel<<<1, 1, 0, stream>>>(values, figures, sums, norm, rules);
}

void LaunchJudge(double* figures, const float* norm, cudaStream_t stream) {
  JudgeKernel<<<1, 1, 0, stream>>>(figures, norm);
}

}  // namespace lockstep::ops
