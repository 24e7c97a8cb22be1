// Precision: the floating-point format of matrix products and convolutions.
//
// Promise: weights, gradients, losses and the optimizer's state are float32. BF16 and FP16 follow torch.autocast: the
// operations that PyTorch considers safe run in 16 bits, and all other operations run in float32, with tf32 for matrix
// products.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "base/tensor/autocast.h"
#include "trainer/config/schema/config.pb.h"

namespace lockstep {

// The precision that `wanted` is on `device`. Throws Error (kUsage) for one that it has not.
config::Precision PrecisionOn(at::Device device, config::Precision wanted);

// Sets what LibTorch keeps for the whole process: rounding to tf32, and whether only algorithms that give
// the same bits every time are used.
void SetUpNumerics(config::Precision precision, bool deterministic);

// While it lives, this thread's forward computes in `precision`. What autocast rounds of weights is rounded
// once, until the outermost one ends.
class Autocast {
 public:
  Autocast(at::Device device, config::Precision precision);

 private:
  AutocastGuard guard_;
  RoundedWeights rounded_weights_;
};

}  // namespace lockstep
