// Decides, on the device, at the end of a step: whether the gradient is finite, by which number the gradient is
// divided, whether the update takes place, and what the next loss scale is.
//
// All values on which the decision depends are in small tensors on the device. The host need not know these values, so
// a CUDA graph can capture the step.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/update/step_values.h"

namespace lockstep::ops {

// Makes the decision when all gradients are complete, and writes the results to `values` and `figures`. `values` is
// float32 [kStepValues], `figures` is float64 [kStepFigures], and `sums` is float32 [kStepSums]. `norm` is the norm of
// the scaled gradients, 0-dimensional float32. All tensors are on one device. An undefined norm counts as finite; the
// caller must then pass the norm to JudgeNorm() later.
void DecideStep(const at::Tensor& values, const at::Tensor& figures, const at::Tensor& sums,
                const at::Tensor& norm, const StepRules& rules);

// Records the norm of a step for which DecideStep() got an undefined norm, and records an anomaly if the norm is not
// finite. This function must be called only if the StepRules neither scale the loss nor weigh targets. `figures` and
// `norm` have the same shapes and types as for DecideStep().
void JudgeNorm(const at::Tensor& figures, const at::Tensor& norm);

// Measure a wait of the GPU: BeginWait() and EndWait() together add to figures[kWaitedS] how many seconds pass on the
// current stream between them. On other devices both functions do nothing, because there the host itself waits and no
// GPU does.
void BeginWait(const at::Tensor& figures);
void EndWait(const at::Tensor& figures);

}  // namespace lockstep::ops
