// Decides the end of a step on the device: whether the gradient is finite, how much it is scaled, whether the update
// takes place, and what the next loss scale is.
//
// All values on which this depends lie in two small tensors on the device. The host therefore need not know them, and
// the step can be a CUDA graph.
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
// finite. This is only for rules that neither scale the loss nor weigh targets. `figures` and `norm` have the same
// shapes and types as for DecideStep().
void JudgeNorm(const at::Tensor& figures, const at::Tensor& norm);

// On a GPU: adds to figures[kWaitedS] for how long the current stream stands still between the two. Elsewhere it is
// the host that stands still, and they do nothing.
void BeginWait(const at::Tensor& figures);
void EndWait(const at::Tensor& figures);

}  // namespace lockstep::ops
