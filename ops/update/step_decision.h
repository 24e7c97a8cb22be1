// Decides the end of a step on the device: whether the gradient is finite, how much it is scaled, whether the update
// takes place, and what the next loss scale is.
//
// All values on which the decision depends are in small tensors on the device. The host need not know them, so the step
// can be captured in a CUDA graph.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/update/step_values.h"

namespace lockstep::ops {

// Call it when all gradients are complete. `values` is float32 [kStepValues], `figures` is float64 [kStepFigures], and
// `sums` is float32 [kStepSums]. `norm` is the norm of the scaled gradients, 0-dimensional float32. All are on the same
// device. An undefined norm counts as finite, and the caller passes the norm to JudgeNorm() later.
void DecideStep(const at::Tensor& values, const at::Tensor& figures, const at::Tensor& sums,
                const at::Tensor& norm, const StepRules& rules);

// Records the norm of a step for which DecideStep() got an undefined norm, and records an anomaly if the norm is not
// finite. Call it only if the StepRules neither scale the loss nor weigh targets. `figures` and `norm` have the same
// shapes and types as for DecideStep().
void JudgeNorm(const at::Tensor& figures, const at::Tensor& norm);

// On a GPU these two functions add to figures[kWaitedS] how many seconds pass on the current stream from BeginWait() to
// EndWait(). On other devices they do nothing, because there the host waits.
void BeginWait(const at::Tensor& figures);
void EndWait(const at::Tensor& figures);

}  // namespace lockstep::ops
