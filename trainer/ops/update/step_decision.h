// The end of a step, decided on the device: is the gradient finite, how much is it scaled, does the update
// take place, what becomes of the loss scale.
//
// All that a step's end depends on lies in two small tensors on the device, so that the host need not know
// and the step can be a CUDA graph.
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

}  // namespace lockstep::ops
