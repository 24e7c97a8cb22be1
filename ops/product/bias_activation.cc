#include "ops/product/bias_activation.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/common/launch_arguments.h"
#include "ops/product/activation_twin.h"
#include "ops/product/bias_activation_kernel.h"
#include "ops/product/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

class FusedBiasActivation : public torch::autograd::Function<FusedBiasActivation> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& bias,
                          Activation activation) {
    const c10::DeviceGuard guard(x.device());
    const at::Tensor y = at::empty_like(x);
    Launch(x, [&](cudaStream_t stream) {
      LaunchBiasActivation({.x = x.const_data_ptr(),
                            .bias = bias.const_data_ptr<float>(),
                            .y = y.mutable_data_ptr()},
                           activation, TypeOf(x), RowsShapeOf(x), stream);
    });
    context->save_for_backward({x, bias});
    context->saved_data["activation"] = static_cast<int64_t>(activation);
    context->saved_data["d_bias"] = GradientToAddTo(bias);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const c10::DeviceGuard guard(x.device());
    const RowsShape shape = RowsShapeOf(x);
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor dx = at::empty_like(x);
    GradientSums d_bias;
    at::Tensor partials;
    if (context->needs_input_grad(1)) {
      d_bias = NewGradientSums(context->saved_data["d_bias"].toTensor(), shape.width, x.options());
      partials =
          at::empty({BiasActivationSlices(shape), shape.width}, x.options().dtype(at::kFloat));
    }
    Launch(x, [&](cudaStream_t stream) {
      LaunchBiasActivationBackward(
          {.x = x.const_data_ptr(),
           .bias = saved[1].const_data_ptr<float>(),
           .dy = dy.const_data_ptr(),
           .dx = dx.mutable_data_ptr(),
           .partials = partials.defined() ? partials.mutable_data_ptr<float>() : nullptr,
           .d_bias = d_bias.to},
          static_cast<Activation>(context->saved_data["activation"].toInt()), TypeOf(x), shape,
          stream);
    });
    return {dx, d_bias.result, {}};
  }
};

}  // namespace

at::Tensor BiasActivation(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  const bool fits = IsOnGpu(x) && IsFloatType(x.scalar_type()) && x.dim() > 0 && x.size(-1) > 0 &&
                    IsFloatVector(bias, x.size(-1), x);
  if (!fits) return BiasActivationTwin(x, bias, activation);
  return FusedBiasActivation::apply(x.contiguous(), bias.contiguous(), activation);
}

at::Tensor BiasActivationTwin(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  // The bias is float32, so the sum and the activation are computed in float32, as in the kernel.
  return ActivationTwin(x + bias, activation).to(x.scalar_type());
}

}  // namespace lockstep::ops
