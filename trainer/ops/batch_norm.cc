#include "trainer/ops/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "trainer/ops/batch_norm_kernel.h"
#include "trainer/ops/launch_arguments.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// In which a row's channels lie together.
at::MemoryFormat FormatOf(const at::Tensor& x) {
  return x.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

BatchNormShape ShapeOf(const at::Tensor& x) {
  return {.rows = x.numel() / x.size(1),
          .channels = x.size(1),
          .multiprocessors = at::cuda::getCurrentDeviceProperties()->multiProcessorCount};
}

bool IsFused(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
             const at::Tensor& residual) {
  const auto is_of_channels = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.device() == x.device() &&
           tensor.dim() == 1 && tensor.size(0) == x.size(1) && tensor.is_contiguous() &&
           IsAligned(tensor);
  };
  const auto is_of_rows = [&](const at::Tensor& tensor) {
    return tensor.sizes() == x.sizes() && tensor.scalar_type() == x.scalar_type() &&
           tensor.device() == x.device() && tensor.is_contiguous(FormatOf(tensor));
  };
  return x.is_cuda() && IsFloatType(x.scalar_type()) && (x.dim() == 2 || x.dim() == 4) &&
         x.numel() > 0 && x.size(1) % ChannelsOfPack(TypeOf(x)) == 0 && is_of_rows(x) &&
         is_of_channels(norm.weight) && is_of_channels(norm.bias) &&
         (!residual.defined() || (activation == Activation::kRelu && is_of_rows(residual)));
}

class FusedBatchNorm : public torch::autograd::Function<FusedBatchNorm> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          const Variable& bias, const std::optional<Variable>& residual,
                          const ChannelNorm& norm, Activation activation) {
    const c10::cuda::CUDAGuard guard(x.device());
    const BatchNormShape shape = ShapeOf(x);
    const at::TensorOptions floats = x.options().dtype(at::kFloat);
    const at::Tensor statistics = at::empty({2, shape.channels}, floats);
    const at::Tensor partials =
        at::empty({BatchNormPartialRows(TypeOf(x), shape), 2, shape.channels}, floats);
    const bool follows = norm.running_mean.defined();
    LaunchBatchNormStatistics(
        {.x = x.const_data_ptr(),
         .epsilon = static_cast<float>(norm.epsilon),
         .momentum = static_cast<float>(norm.momentum),
         .partials = partials.mutable_data_ptr<float>(),
         .statistics = statistics.mutable_data_ptr<float>(),
         .running_mean = follows ? norm.running_mean.mutable_data_ptr<float>() : nullptr,
         .running_var = follows ? norm.running_var.mutable_data_ptr<float>() : nullptr},
        TypeOf(x), shape, StreamOf(x));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    const bool relu = activation == Activation::kRelu;
    const at::Tensor y = at::empty_like(x);
    at::Tensor mask;
    if (residual) {
      mask = at::empty({shape.rows, shape.channels / ChannelsOfPack(TypeOf(x))},
                       x.options().dtype(at::kByte));
    }
    LaunchBatchNorm({.x = x.const_data_ptr(),
                     .residual = residual ? residual->const_data_ptr() : nullptr,
                     .weight = weight.const_data_ptr<float>(),
                     .bias = bias.const_data_ptr<float>(),
                     .statistics = statistics.const_data_ptr<float>(),
                     .relu = relu,
                     .y = y.mutable_data_ptr(),
                     .mask = mask.defined() ? mask.mutable_data_ptr<uint8_t>() : nullptr},
                    TypeOf(x), shape, StreamOf(x));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    context->save_for_backward({x, weight, bias, statistics, mask});
    context->saved_data["relu"] = relu;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& mask = saved[4];
    const c10::cuda::CUDAGuard guard(x.device());
    const BatchNormShape shape = ShapeOf(x);
    const at::Tensor dy = Aligned(gradients[0].contiguous(FormatOf(x)));
    const at::TensorOptions floats = x.options().dtype(at::kFloat);
    const at::Tensor partials =
        at::empty({BatchNormPartialRows(TypeOf(x), shape), 2, shape.channels}, floats);
    const at::Tensor d_weights = at::empty({2, shape.channels}, floats);
    const at::Tensor dx = at::empty_like(x);
    at::Tensor d_residual;
    if (mask.defined() && context->needs_input_grad(3)) d_residual = at::empty_like(x);
    LaunchBatchNormBackward(
        {.x = x.const_data_ptr(),
         .dy = dy.const_data_ptr(),
         .weight = saved[1].const_data_ptr<float>(),
         .bias = saved[2].const_data_ptr<float>(),
         .statistics = saved[3].const_data_ptr<float>(),
         .relu = context->saved_data["relu"].toBool(),
         .mask = mask.defined() ? mask.const_data_ptr<uint8_t>() : nullptr,
         .partials = partials.mutable_data_ptr<float>(),
         .d_weights = d_weights.mutable_data_ptr<float>(),
         .dx = dx.mutable_data_ptr(),
         .d_residual = d_residual.defined() ? d_residual.mutable_data_ptr() : nullptr},
        TypeOf(x), shape, StreamOf(x));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {dx, d_weights.select(0, 0), d_weights.select(0, 1), d_residual, {}, {}};
  }
};

}  // namespace

at::Tensor BatchNorm(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
                     const at::Tensor& residual) {
  if (!IsFused(x, norm, activation, residual)) {
    return BatchNormTwin(Aligned(x), norm, activation, residual);
  }
  return FusedBatchNorm::apply(Aligned(x), norm.weight, norm.bias,
                               residual.defined() ? std::optional(Aligned(residual)) : std::nullopt,
                               norm, activation);
}

at::Tensor BatchNormTwin(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
                         const at::Tensor& residual) {
  return AddAndActivate(
      at::batch_norm(x, norm.weight, norm.bias, norm.running_mean, norm.running_var,
                     /*training=*/true, norm.momentum, norm.epsilon, /*cudnn_enabled=*/true),
      activation, residual);
}

at::Tensor AddAndActivate(at::Tensor y, Activation activation, const at::Tensor& residual) {
  if (residual.defined()) y.add_(residual);
  return activation == Activation::kRelu ? y.relu_() : y;
}

}  // namespace lockstep::ops
