#include "trainer/ops/linear.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "trainer/ops/launch_arguments.h"
#include "trainer/ops/linear_kernel.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// [inputs, outputs], whatever the layout: a view.
at::Tensor Matrix(const at::Tensor& weight, WeightLayout layout) {
  return layout == WeightLayout::kInputsOutputs ? weight : weight.t();
}

// [..., n] -> [product, n].
at::Tensor Rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// The reverse, with x's leading sizes. No view for autograd, which would forbid writing to it.
at::Tensor WithRowsOf(const at::Tensor& x, const at::Tensor& rows) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = rows.size(1);
  return at::_unsafe_view(rows, sizes);
}

class FusedLinear : public torch::autograd::Function<FusedLinear> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          const std::optional<Variable>& bias, bool inputs_first) {
    const WeightLayout layout =
        inputs_first ? WeightLayout::kInputsOutputs : WeightLayout::kOutputsInputs;
    const at::Tensor rows = Rows(x);
    const at::Tensor rounded = weight.to(x.scalar_type());
    const at::Tensor matrix = Matrix(rounded, layout);
    // ATen gives a bias of one dimension to cuBLASLt, which adds it as it writes the product.
    const at::Tensor y =
        bias ? at::addmm(bias->to(x.scalar_type()), rows, matrix) : at::mm(rows, matrix);
    // Each serves the other's gradient.
    context->save_for_backward(
        {weight.requires_grad() ? rows : at::Tensor(), x.requires_grad() ? rounded : at::Tensor()});
    context->saved_data["inputs_first"] = inputs_first;
    context->saved_data["has_bias"] = bias.has_value();
    return WithRowsOf(x, y);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const bool inputs_first = context->saved_data["inputs_first"].toBool();
    const WeightLayout layout =
        inputs_first ? WeightLayout::kInputsOutputs : WeightLayout::kOutputsInputs;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor dy = Rows(gradients[0]).contiguous();
    // A thread of autograd's may come to its first product without a context, of which ATen would warn.
    c10::cuda::set_device(dy.device().index(), /*force=*/true);
    variable_list results(4);
    if (context->needs_input_grad(0)) {
      results[0] = WithRowsOf(gradients[0], at::mm(dy, Matrix(saved[1], layout).t()));
    }
    if (context->needs_input_grad(1)) {
      results[1] = layout == WeightLayout::kInputsOutputs ? at::mm(x.t(), dy, at::kFloat)
                                                          : at::mm(dy.t(), x, at::kFloat);
    }
    // Without a bias there is no such input.
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2))
      results[2] = ColumnSums(dy);
    return results;
  }
};

}  // namespace

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  WeightLayout layout) {
  const bool is_16_bit = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  if (!x.is_cuda() || !is_16_bit) return LinearTwin(x, weight, bias, layout);
  return FusedLinear::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt,
                            layout == WeightLayout::kInputsOutputs);
}

at::Tensor LinearTwin(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      WeightLayout layout) {
  const at::ScalarType type = x.scalar_type();
  return at::linear(x, Matrix(weight.to(type), layout).t(),
                    bias.defined() ? std::optional(bias.to(type)) : std::nullopt);
}

at::Tensor ColumnSums(const at::Tensor& x) {
  if (!x.is_cuda() || !IsFloatType(x.scalar_type()) || x.numel() == 0) {
    return at::sum(x.detach(), {0}, /*keepdim=*/false, at::kFloat);
  }
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor rows = x.contiguous();
  const ColumnSumsShape shape = {
      .rows = rows.size(0),
      .columns = rows.size(1),
      .multiprocessors = at::cuda::getCurrentDeviceProperties()->multiProcessorCount};
  const at::TensorOptions options = x.options().dtype(at::kFloat);
  const int64_t slices = ColumnSumSlices(rows.const_data_ptr(), TypeOf(x), shape);
  at::Tensor partials;
  if (slices > 1) partials = at::empty({slices, shape.columns}, options);
  const at::Tensor sums = at::empty({shape.columns}, options);
  LaunchColumnSums(rows.const_data_ptr(), TypeOf(x),
                   slices > 1 ? partials.mutable_data_ptr<float>() : nullptr,
                   sums.mutable_data_ptr<float>(), shape, StreamOf(x));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return sums;
}

}  // namespace lockstep::ops
