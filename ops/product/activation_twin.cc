#include "ops/product/activation_twin.h"

#include <ATen/ATen.h>

namespace lockstep::ops {

at::Tensor ActivationTwin(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kHardswish:
      return at::hardswish(x);
    case Activation::kGelu:
      return at::gelu(x, "none");
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kNone:
      break;
  }
  return x;
}

}  // namespace lockstep::ops
