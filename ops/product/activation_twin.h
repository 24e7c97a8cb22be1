// ActivationTwin(): computes an activation function with plain ATen calls.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/product/activation.h"

namespace lockstep::ops {

// Returns f(x), where f is `activation`, with a gradient. `x` has any shape, any float type and any device.
at::Tensor ActivationTwin(const at::Tensor& x, Activation activation);

}  // namespace lockstep::ops
