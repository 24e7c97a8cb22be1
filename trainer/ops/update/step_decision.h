// Decides the end of a step on the device: whether the gradient is finite, how much it is scaled, whether the update
// takes place, and what the next loss scale is.
//
// All values on which this depends lie in two small tensors on the device. The host therefore need not know them, and
// the step can be a CUDA graph.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/ops/update/step_values.h"

namespace lockstep::ops {

// To be called once all gradients are there. values: float32 [kStepValues], figures: float64
// [kStepFigures]; sums: float32 [kStepSums]; norm: 0-dimensional float32 on the same device, that of the
// scaled gradients. An undefined norm is taken for finite, and JudgeNorm() gets it later.
void DecideStep(const at::Tensor& values, const at::Tensor& figures, const at::Tensor& sums,
                const at::Tensor& norm, const StepRules& rules);

// The norm of a step that DecideStep() let pass without it, under rules that scale no loss. Shapes and types are
// as there.
void JudgeNorm(const at::Tensor& figures, const at::Tensor& norm);

// On a GPU: adds to figures[kWaitedS] for how long the current stream stands still between the two. Elsewhere it is
// the host that stands still, and they do nothing.
void BeginWait(const at::Tensor& figures);
void EndWait(const at::Tensor& figures);

}  // namespace lockstep::ops
