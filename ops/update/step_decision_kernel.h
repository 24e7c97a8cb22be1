// The arithmetic of step_decision.h, as functions for the host and the device, and the functions that launch the
// kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>

#include "ops/update/step_values.h"

#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep::ops {

LOCKSTEP_HOST_DEVICE inline bool IsFinite(double value) { return value - value == 0; }

// Records this step as an anomaly, unless an anomaly of this or an earlier step was recorded before.
LOCKSTEP_HOST_DEVICE inline void NoteAnomaly(double* figures) {
  if (figures[kBadStep] > 0) return;
  figures[kBadStep] = figures[kSteps];
  figures[kBadLoss] = figures[kLoss];
  figures[kBadGradNorm] = figures[kGradNorm];
}

// Returns the targets' mean weight, by which the loss and the gradients are divided, or 1 if the targets are not
// weighed or their mean weight is 0.
LOCKSTEP_HOST_DEVICE inline float WeightOf(const float* sums, const StepRules& rules) {
  return rules.weighs_targets && sums[kWeightSum] > 0 ? sums[kWeightSum] : 1;
}

// Makes the decision of DecideStep(). `norm` is null if the norm is not known yet.
LOCKSTEP_HOST_DEVICE inline void Decide(float* values, double* figures, const float* sums,
                                        const float* norm, const StepRules& rules) {
  const float weight = WeightOf(sums, rules);
  const float loss = sums[kLossSum] / weight;
  const float scale = values[kLossScale];
  const float divisor = scale * weight;
  const float true_norm = norm == nullptr ? 0 : *norm / divisor;
  const bool finite = IsFinite(loss) && IsFinite(true_norm);
  figures[kSteps] += 1;
  figures[kLoss] = loss;
  figures[kGradNorm] = true_norm;
  figures[kScale] = scale;
  figures[kSavesAsked] = sums[kSaveSum];
  figures[kStopsAsked] = sums[kStopSum];
  figures[kInterruptsAsked] = sums[kInterruptSum];
  figures[kProfilesAsked] = sums[kProfileSum];
  if (!finite && !rules.scales_loss) NoteAnomaly(figures);
  const bool skip = !finite || (rules.stops && figures[kBadStep] > 0);
  figures[kSkipped] += skip;
  values[kSkip] = skip;
  values[kUpdates] += !skip;
  // These lines clip as torch.nn.utils.clip_grad_norm_ does, which multiplies the gradients by max_norm / (norm + 1e-6)
  // if this factor is below 1.
  const float stretch = (true_norm + 1e-6F) / rules.max_norm;
  values[kGradScale] = rules.max_norm > 0 && stretch > 1 ? divisor * stretch : divisor;

  // The lines below compute the next loss scale by the algorithm of torch.amp.GradScaler.update().
  if (!rules.scales_loss) return;
  if (!finite) {
    values[kLossScale] = scale * 0.5F;
    values[kGrowthTracker] = 0;
  } else if (values[kGrowthTracker] + 1 == static_cast<float>(rules.growth_interval)) {
    if (IsFinite(scale * 2)) values[kLossScale] = scale * 2;
    values[kGrowthTracker] = 0;
  } else {
    values[kGrowthTracker] += 1;
  }
}

LOCKSTEP_HOST_DEVICE inline void Judge(double* figures, float norm) {
  figures[kGradNorm] = norm;
  if (!IsFinite(norm)) NoteAnomaly(figures);
}

void LaunchDecide(float* values, double* figures, const float* sums, const float* norm,
                  const StepRules& rules, cudaStream_t stream);
void LaunchJudge(double* figures, const float* norm, cudaStream_t stream);
void LaunchBeginWait(double* figures, cudaStream_t stream);
void LaunchEndWait(double* figures, cudaStream_t stream);

}  // namespace lockstep::ops
