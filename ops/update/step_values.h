// The inputs and the results of the decision at the end of a step (step_decision.h).
#pragma once

#include <cstdint>

namespace lockstep::ops {

// The indices of the values that a step sums over the ranks (float32).
enum StepSum {
  kLossSum,       // the mean loss of the global batch, after the sum over the ranks
  kSaveSum,       // the number of checkpoints requested so far (all ranks but one send 0)
  kStopSum,       // how many ranks were asked to stop, so that the run can be resumed later
  kInterruptSum,  // on how many ranks the user interrupted the run
  kProfileSum,    // the number of profiled steps requested so far (all ranks but one send 0)
  // If StepRules::weighs_targets: the mean weight of the global batch's targets, after the sum over the ranks.
  kWeightSum,
  kStepSums
};

// The indices of the tensor `values` of step_decision.h (float32).
enum StepValue {
  kLossScale,  // the factor by which the loss is multiplied
  // GradScaler's growth tracker: the number of steps with a finite gradient since the tracker was last set to 0.
  kGrowthTracker,
  // The divisor of the gradients in the update: the product of the loss scale, the targets' mean weight and the
  // clipping.
  kGradScale,
  kSkip,     // 1 if the update does not take place, otherwise 0
  kUpdates,  // the number of updates so far, including this one
  kStepValues
};

// The indices of the tensor `figures` of step_decision.h (float64), which the host reads. Loss and gradient are those
// of the last step.
enum StepFigure {
  kLoss,
  kGradNorm,  // the L2 norm of the gradient before clipping, without the loss scale
  kScale,     // the loss scale of this step
  kSteps,     // the number of steps so far, including this one
  kSkipped,   // the number of steps without an update so far
  // The number of the first step, counted from 1, whose loss or gradient was not finite; 0 if there is none. If
  // StepRules::scales_loss is true, no step is recorded.
  kBadStep,
  kBadLoss,         // the loss of step kBadStep
  kBadGradNorm,     // the gradient norm of step kBadStep
  kLastingFigures,  // the number of the figures above, which are part of the run's state

  // The figures from kSavesAsked to kProfilesAsked are the sums kSaveSum to kProfileSum.
  kSavesAsked = kLastingFigures,
  kStopsAsked,
  kInterruptsAsked,
  kProfilesAsked,
  // Used only on a GPU: the total seconds between BeginWait() and EndWait() (step_decision.h) so far, and the time, by
  // the GPU's clock, of the last BeginWait().
  kWaitedS,
  kWaitBegan,
  kStepFigures
};

struct StepRules {
  float max_norm = 0;  // the norm to which gradients are clipped; 0 for no clipping
  // True for FP16, where a loss or gradient that is not finite lowers the loss scale and is not an anomaly.
  bool scales_loss = false;
  // The number of consecutive steps with a finite gradient after which the loss scale doubles.
  int32_t growth_interval = 0;
  bool stops = true;  // whether updates stop after an anomaly
  // Whether the loss and the gradients are to be divided by the targets' mean weight. If the mean weight is 0, the loss
  // and the gradients are 0 as well, and are not divided.
  bool weighs_targets = false;
};

}  // namespace lockstep::ops
