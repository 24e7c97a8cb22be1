// ActivationTwin(): an activation function from plain ATen calls.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/product/activation.h"

namespace lockstep::ops {

// Returns f(x), with a gradient. `x` has any shape and float type, and any device.
at::Tensor ActivationTwin(const at::Tensor& x, Activation activation);

}  // namespace lockstep::ops
