// Precision: the floating-point format of matrix products and convolutions.
//
// Promise: weights, gradients, losses and the optimizer's state are float32. BF16 and FP16 follow torch.autocast: the
// operations for which torch.autocast chooses 16 bits run in 16 bits, and all other operations run in float32, where
// matrix products and convolutions may round their inputs to tf32.
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

// Returns whether matrix products and convolutions compute in 16 bits with `precision`.
inline bool Is16Bit(config::Precision precision) {
  return precision == config::BF16 || precision == config::FP16;
}

// Sets options of LibTorch that hold for the whole process, among them whether matrix products and convolutions may
// round their inputs to tf32 (with every `precision` except FP32), and whether LibTorch uses only `deterministic`
// algorithms, which give the same bits every time.
void SetUpNumerics(config::Precision precision, bool deterministic);

// Makes the operations of this thread compute in `precision` until the object is destroyed. Each weight is rounded
// once, and the rounded copy is kept until the outermost Autocast or RoundedWeights object of the thread is destroyed.
class Autocast {
 public:
  Autocast(at::Device device, config::Precision precision);

 private:
  AutocastGuard guard_;
  RoundedWeights rounded_weights_;
};

}  // namespace lockstep
