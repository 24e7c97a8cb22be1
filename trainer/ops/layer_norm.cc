#include "trainer/ops/layer_norm.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "trainer/ops/launch_arguments.h"
#include "trainer/ops/layer_norm_kernel.h"
#include "trainer/ops/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

LayerNormShape ShapeOf(const at::Tensor& x) {
  const int64_t width = x.size(-1);
  return {.rows = x.numel() / width,
          .width = width,
          .multiprocessors = at::cuda::getCurrentDeviceProperties()->multiProcessorCount};
}

bool IsFused(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto is_weight = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.device() == x.device() &&
           tensor.dim() == 1 && tensor.size(0) == x.size(-1);
  };
  return x.is_cuda() && IsFloatType(x.scalar_type()) && x.dim() > 0 && x.size(-1) > 0 &&
         is_weight(weight) && is_weight(bias);
}

// -> {y}, or {sum, y} where there is a branch.
class FusedLayerNorm : public torch::autograd::Function<FusedLayerNorm> {
 public:
  static variable_list forward(AutogradContext* context, const Variable& x, const Variable& weight,
                               const Variable& bias, const std::optional<Variable>& branch,
                               const std::optional<Variable>& branch_bias, double epsilon) {
    const c10::cuda::CUDAGuard guard(x.device());
    const LayerNormShape shape = ShapeOf(x);
    const at::Tensor sum = branch ? at::empty_like(x) : at::Tensor();
    const at::Tensor y = at::empty_like(x);
    const at::Tensor statistics = at::empty({shape.rows, 2}, x.options().dtype(at::kFloat));
    LaunchLayerNorm(
        {.x = x.const_data_ptr(),
         .branch = branch ? branch->const_data_ptr() : nullptr,
         .branch_bias = branch_bias ? branch_bias->const_data_ptr<float>() : nullptr,
         .weight = weight.const_data_ptr<float>(),
         .bias = bias.const_data_ptr<float>(),
         .epsilon = static_cast<float>(epsilon),
         .sum = sum.defined() ? sum.mutable_data_ptr() : nullptr,
         .y = y.mutable_data_ptr(),
         .statistics = reinterpret_cast<RowStatistics*>(statistics.mutable_data_ptr<float>())},
        TypeOf(x), shape, StreamOf(x));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    context->set_materialize_grads(false);
    context->save_for_backward({sum.defined() ? sum : x, weight, statistics});
    context->saved_data["d_weight"] = GradientToAddTo(weight);
    context->saved_data["d_bias"] = GradientToAddTo(bias);
    context->saved_data["has_branch_bias"] = branch_bias.has_value();
    if (branch_bias) context->saved_data["d_branch_bias"] = GradientToAddTo(*branch_bias);
    return sum.defined() ? variable_list{sum, y} : variable_list{y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const bool adds = gradients.size() == 2;
    // Without a bias there is no such input.
    const bool wants_branch_bias =
        context->saved_data["has_branch_bias"].toBool() && context->needs_input_grad(4);
    const at::Tensor d_sum = adds ? gradients[0] : at::Tensor();
    if (!gradients.back().defined()) {
      at::Tensor d_branch_bias;
      if (wants_branch_bias) {
        d_branch_bias = d_sum.flatten(0, -2).sum(0, /*keepdim=*/false, at::kFloat);
      }
      return {d_sum, {}, {}, d_sum, d_branch_bias, {}};
    }
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const c10::cuda::CUDAGuard guard(x.device());
    const LayerNormShape shape = ShapeOf(x);
    const auto sums = [&](bool wanted, const char* name) {
      if (!wanted) return GradientSums();
      return NewGradientSums(context->saved_data[name].toTensor(), shape.width, x.options());
    };
    const at::Tensor dy = gradients.back().contiguous();
    const at::Tensor added = d_sum.defined() ? d_sum.contiguous() : at::Tensor();
    const at::Tensor dx = at::empty_like(x);
    const GradientSums d_weight = sums(context->needs_input_grad(1), "d_weight");
    const GradientSums d_bias = sums(context->needs_input_grad(2), "d_bias");
    const GradientSums d_branch_bias = sums(wants_branch_bias, "d_branch_bias");
    at::Tensor partials;
    if (d_weight.to.sums || d_bias.to.sums || d_branch_bias.to.sums) {
      partials = at::empty({PartialRows(shape), LayerNormBackward::kParts, shape.width},
                           x.options().dtype(at::kFloat));
    }
    LaunchLayerNormBackward(
        {.x = x.const_data_ptr(),
         .dy = dy.const_data_ptr(),
         .d_sum = added.defined() ? added.const_data_ptr() : nullptr,
         .weight = saved[1].const_data_ptr<float>(),
         .statistics = reinterpret_cast<const RowStatistics*>(saved[2].const_data_ptr<float>()),
         .dx = dx.mutable_data_ptr(),
         .partials = partials.defined() ? partials.mutable_data_ptr<float>() : nullptr,
         .d_weight = d_weight.to,
         .d_bias = d_bias.to,
         .d_branch_bias = d_branch_bias.to},
        TypeOf(x), shape, StreamOf(x));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {dx, d_weight.result, d_bias.result, adds ? dx : at::Tensor(), d_branch_bias.result, {}};
  }
};

}  // namespace

at::Tensor LayerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon) {
  if (!IsFused(x, weight, bias)) return LayerNormTwin(x, weight, bias, epsilon);
  return FusedLayerNorm::apply(x.contiguous(), weight.contiguous(), bias.contiguous(),
                               std::optional<Variable>(), std::optional<Variable>(), epsilon)[0];
}

std::pair<at::Tensor, at::Tensor> AddLayerNorm(const at::Tensor& x, const Branch& branch,
                                               const at::Tensor& weight, const at::Tensor& bias,
                                               double epsilon) {
  const bool alike = branch.values.sizes() == x.sizes() &&
                     branch.values.scalar_type() == x.scalar_type() &&
                     branch.values.device() == x.device();
  if (!alike || !IsFused(x, weight, branch.bias.defined() ? branch.bias : bias) ||
      !IsFused(x, weight, bias)) {
    return AddLayerNormTwin(x, branch, weight, bias, epsilon);
  }
  const variable_list results = FusedLayerNorm::apply(
      x.contiguous(), weight.contiguous(), bias.contiguous(),
      std::optional<Variable>(branch.values.contiguous()),
      branch.bias.defined() ? std::optional<Variable>(branch.bias.contiguous()) : std::nullopt,
      epsilon);
  return {results[0], results[1]};
}

at::Tensor LayerNormTwin(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         double epsilon) {
  const bool is_16_bit = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  const at::ScalarType type = is_16_bit ? at::kFloat : x.scalar_type();
  return at::layer_norm(x.to(type), {x.size(-1)}, weight.to(type), bias.to(type), epsilon)
      .to(x.scalar_type());
}

std::pair<at::Tensor, at::Tensor> AddLayerNormTwin(const at::Tensor& x, const Branch& branch,
                                                   const at::Tensor& weight, const at::Tensor& bias,
                                                   double epsilon) {
  at::Tensor added = branch.values;
  // Float32 where the bias is, as in the kernel.
  if (branch.bias.defined()) added = added + branch.bias;
  const at::Tensor sum = (x + added).to(x.scalar_type());
  return {sum, LayerNormTwin(sum, weight, bias, epsilon)};
}

}  // namespace lockstep::ops
