// Precision: the floating-point format of matrix products and convolutions.
//
// Promise: weights, gradients, losses and the optimizer's state are float32. BF16 and FP16 follow torch.autocast: the
// operations that PyTorch considers safe run in 16 bits, and all other operations run in float32, with tf32 for matrix
// products.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "base/tensor/autocast.h"
#include "config/schema/config.pb.h"

namespace lockstep {

// Returns the precision that training uses on `device` if the config asks for `wanted`. For AUTO this is FP32 on a CPU,
// BF16 on a GPU of compute capability 8.0 or higher, and FP16 on an older GPU. Throws Error (kUsage) if the device does
// not support `wanted`.
config::Precision PrecisionOn(at::Device device, config::Precision wanted);

// Returns whether products and convolutions compute in 16 bits.
inline bool Is16Bit(config::Precision precision) {
  return precision == config::BF16 || precision == config::FP16;
}

// Sets options of LibTorch that hold for the whole process, among them whether products may round their inputs to tf32,
// and whether LibTorch uses only algorithms that give the same bits every time.
void SetUpNumerics(config::Precision precision, bool deterministic);

// While an Autocast object exists, this thread's forward computes in `precision`. Autocast rounds each weight once and
// keeps the rounded weight until the outermost Autocast object is destroyed.
class Autocast {
 public:
  Autocast(at::Device device, config::Precision precision);

 private:
  AutocastGuard guard_;
  RoundedWeights rounded_weights_;
};

}  // namespace lockstep
