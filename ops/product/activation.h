// The activation functions that can follow a layer.
#pragma once

namespace lockstep::ops {

enum class Activation {
  kNone,
  kRelu,
  kSilu,       // x / (1 + exp(-x))
  kHardswish,  // x min(max(x + 3, 0), 6) / 6
  kGelu,       // x Phi(x), where Phi is the distribution function of the normal distribution
  kGeluTanh,   // x / (1 + exp(-2 u)), where u = sqrt(2 / pi) (x + 0.044715 x^3)
};

}  // namespace lockstep::ops
