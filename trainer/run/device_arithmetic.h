// DeviceArithmetic: how a device computes in a precision, and how fast at most.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "config/schema/config.pb.h"
#include "observe/verdict/gpu_peak.h"

namespace lockstep {

struct DeviceArithmetic {
  Arithmetic kind = Arithmetic::kFp32;
  double peak_flops = 0;  // in FLOP/s; 0: unknown, or a CPU
  std::string
      faster_precision;  // "BF16" or "FP16", if the GPU computes faster in it than in FP32; empty: it does not
};

DeviceArithmetic ArithmeticOf(at::Device device, config::Precision precision);

}  // namespace lockstep
