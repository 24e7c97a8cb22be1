// The activation functions that can follow a layer.
#pragma once

namespace lockstep::ops {

enum class Activation {
  kNone,
  kRelu,
  kSilu,      // x / (1 + exp(-x))
  kGelu,      // x Phi(x), Phi the normal distribution's
  kGeluTanh,  // x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
};

}  // namespace lockstep::ops
