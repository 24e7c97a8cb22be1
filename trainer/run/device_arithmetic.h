// DeviceArithmetic: the kind of arithmetic that a device uses for a precision, and the peak speed of that arithmetic.
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
      faster_precision;  // "BF16" or "FP16", for which the GPU has tensor cores; empty: neither
};

DeviceArithmetic ArithmeticOf(at::Device device, config::Precision precision);

}  // namespace lockstep
