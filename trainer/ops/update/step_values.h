// The inputs and the results of the decision at the end of a step (step_decision.h).
#pragma once

#include <cstdint>

namespace lockstep::ops {

// Places in what a step sums over the ranks, float32.
enum StepSum {
  kLossSum,       // the mean loss of the global batch, once each rank's share is in it
  kSaveSum,       // checkpoints that were asked for so far (rank 0 alone counts them)
  kStopSum,       // ranks that were asked to stop, to go on another time
  kInterruptSum,  // ranks whose user ends the run
  kStepSums
};

// Places in `values`, float32.
enum StepValue {
  kLossScale,      // what the loss is multiplied by
  kGrowthTracker,  // steps since the loss scale last changed or a gradient was not finite
  kGradScale,      // what gradients are divided by in the update: loss scale and clipping
  kSkip,           // 1: the update does not take place
  kUpdates,        // updates so far, with this one
  kStepValues
};

// Places in `figures`, float64: what the host is told.
enum StepFigure {
  kLoss,
  kGradNorm,  // L2, before clipping, without the loss scale
  kScale,     // the loss scale of this step
  kSteps,     // so far, with this one
  kSkipped,   // steps without update so far
  kBadStep,  // the first whose loss or gradient was not finite where that is an anomaly, from 1; 0: none
  kBadLoss,         // of that step
  kBadGradNorm,     // of that step
  kLastingFigures,  // those before it are a part of the run's state

  kSavesAsked = kLastingFigures,  // these three: as of StepSum
  kStopsAsked,
  kInterruptsAsked,
  // On a GPU: seconds that its stream has stood still between BeginWait() and EndWait() so far, and the GPU's time at
  // the last BeginWait() (step_decision.h).
  kWaitedS,
  kWaitBegan,
  kStepFigures
};

struct StepRules {
  float max_norm = 0;           // gradients are clipped to it; 0: not
  bool scales_loss = false;     // FP16: what is not finite lowers the scale and is no anomaly
  int32_t growth_interval = 0;  // of the loss scale
  bool stops = true;            // after an anomaly no update takes place any more
};

}  // namespace lockstep::ops
