#include "ops/norm/scaled_sum.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/common/launch_arguments.h"
#include "ops/norm/scaled_sum_kernel.h"
#include "ops/product/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr int64_t kPack = 8;

class FusedScaledSum : public torch::autograd::Function<FusedScaledSum> {
 public:
  // Returns {sum} or {sum, rounded}.
  static variable_list forward(AutogradContext* context, const Variable& x, const Variable& branch,
                               const Variable& scale, bool rounds) {
    const at::Tensor sum = at::empty_like(branch, branch.options().dtype(at::kFloat));
    const at::Tensor rounded = rounds ? at::empty_like(branch) : at::Tensor();
    Launch(branch, [&](cudaStream_t stream) {
      LaunchScaledSum({.x = x.const_data_ptr(),
                       .branch = branch.const_data_ptr(),
                       .scale = scale.const_data_ptr<float>(),
                       .sum = sum.mutable_data_ptr<float>(),
                       .rounded = rounds ? rounded.mutable_data_ptr() : nullptr},
                      {TypeOf(x), TypeOf(branch)}, RowsShapeOf(branch), stream);
    });
    context->set_materialize_grads(false);
    context->save_for_backward({branch, scale});
    context->saved_data["type"] = x.scalar_type();
    variable_list results{sum};
    if (rounds) results.push_back(rounded);
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto in_rows = [](const at::Tensor& gradient) {
      return gradient.defined() ? Aligned(gradient.contiguous()) : gradient;
    };
    const at::Tensor d_sum = in_rows(gradients[0]);
    const at::Tensor d_rounded = in_rows(gradients.size() > 1 ? gradients[1] : at::Tensor());
    variable_list results(4);
    if (!d_sum.defined() && !d_rounded.defined()) return results;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& branch = saved[0];
    const at::ScalarType type = context->saved_data["type"].toScalarType();
    const RowsShape shape = RowsShapeOf(branch);
    // If x is float32 and only the sum has a gradient, the gradient of the sum is also the gradient of x.
    const bool is_sums = type == at::kFloat && !d_rounded.defined();
    const bool writes_x = context->needs_input_grad(0) && !is_sums;
    const at::Tensor dx =
        writes_x ? at::empty_like(branch, branch.options().dtype(type)) : at::Tensor();
    const at::Tensor d_branch = at::empty_like(branch);
    GradientSums d_scale;
    at::Tensor partials;
    if (context->needs_input_grad(2)) {
      d_scale = NewGradientSums(at::Tensor(), shape.width, branch.options());
      partials =
          at::empty({ScaledSumSlices(shape), shape.width}, branch.options().dtype(at::kFloat));
    }
    Launch(branch, [&](cudaStream_t stream) {
      LaunchScaledSumBackward(
          {.d_sum = d_sum.defined() ? d_sum.const_data_ptr<float>() : nullptr,
           .d_rounded = d_rounded.defined() ? d_rounded.const_data_ptr() : nullptr,
           .branch = branch.const_data_ptr(),
           .scale = saved[1].const_data_ptr<float>(),
           .dx = writes_x ? dx.mutable_data_ptr() : nullptr,
           .d_branch = d_branch.mutable_data_ptr(),
           .partials = partials.defined() ? partials.mutable_data_ptr<float>() : nullptr,
           .d_scale = d_scale.to},
          {TypeOf(type), TypeOf(branch)}, shape, stream);
    });
    results[0] = is_sums ? d_sum : dx;
    results[1] = d_branch;
    results[2] = d_scale.result;
    return results;
  }
};

}  // namespace

bool HasScaledSumKernels(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& scale) {
  const bool fits = IsOnGpu(branch) && Is16Bit(branch) && branch.dim() > 0 && branch.numel() > 0 &&
                    branch.size(-1) % kPack == 0 && IsFloatVector(scale, branch.size(-1), branch);
  return fits && x.sizes() == branch.sizes() && x.device() == branch.device() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == branch.scalar_type());
}

ScaledSumResult ScaledSum(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& scale,
                          bool rounds) {
  if (!HasScaledSumKernels(x, branch, scale)) return ScaledSumTwin(x, branch, scale);
  const variable_list results = FusedScaledSum::apply(
      Aligned(x.contiguous()), Aligned(branch.contiguous()), Aligned(scale.contiguous()), rounds);
  return {.sum = results[0], .rounded = rounds ? results[1] : at::Tensor()};
}

ScaledSumResult ScaledSumTwin(const at::Tensor& x, const at::Tensor& branch,
                              const at::Tensor& scale) {
  const at::Tensor sum = x + branch * scale;
  return {.sum = sum, .rounded = sum.to(branch.scalar_type())};
}

}  // namespace lockstep::ops
