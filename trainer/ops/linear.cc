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
#include "trainer/ops/matrix_product.h"
#include "trainer/ops/rounded_weight.h"
#include "trainer/ops/weight_gradient.h"

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

// Enqueues the sums over x's rows, of which there may be none; for types that the kernel knows.
void SumColumns(const at::Tensor& x, const SumsTo& to) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor rows = x.contiguous();
  const ColumnSumsShape shape = {
      .rows = rows.size(0),
      .columns = rows.size(1),
      .multiprocessors = at::cuda::getCurrentDeviceProperties()->multiProcessorCount};
  const int64_t slices = ColumnSumSlices(rows.const_data_ptr(), TypeOf(x), shape);
  const at::Tensor partials = at::empty({slices, shape.columns}, x.options().dtype(at::kFloat));
  LaunchColumnSums(rows.const_data_ptr(), TypeOf(x), partials.mutable_data_ptr<float>(), to, shape,
                   StreamOf(x));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

class FusedLinear : public torch::autograd::Function<FusedLinear> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          const std::optional<Variable>& bias, bool inputs_first, bool trains) {
    const WeightLayout layout =
        inputs_first ? WeightLayout::kInputsOutputs : WeightLayout::kOutputsInputs;
    const at::Tensor rows = Rows(x);
    const at::Tensor rounded = Rounded(weight, x.scalar_type());
    const at::Tensor matrix = Matrix(rounded, layout);
    const at::Tensor y = at::empty({rows.size(0), matrix.size(1)}, x.options());
    MatrixProduct(y, rows, matrix,
                  {.bias = bias ? bias->to(x.scalar_type()) : at::Tensor(), .searches = trains});
    // Each serves the other's gradient.
    context->save_for_backward(
        {weight.requires_grad() ? rows : at::Tensor(), x.requires_grad() ? rounded : at::Tensor()});
    context->saved_data["inputs_first"] = inputs_first;
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["d_weight"] = GradientToAddTo(weight);
    if (bias) context->saved_data["d_bias"] = GradientToAddTo(*bias);
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
    variable_list results(5);
    if (context->needs_input_grad(0)) {
      const at::Tensor matrix = Matrix(saved[1], layout).t();
      const at::Tensor dx = at::empty({dy.size(0), matrix.size(1)}, dy.options());
      MatrixProduct(dx, dy, matrix);
      results[0] = WithRowsOf(gradients[0], dx);
    }
    if (context->needs_input_grad(1)) {
      const at::Tensor to = context->saved_data["d_weight"].toTensor();
      results[1] = layout == WeightLayout::kInputsOutputs ? AddProduct(to, x.t(), dy)
                                                          : AddProduct(to, dy.t(), x);
    }
    // Without a bias there is no such input.
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      const GradientSums d_bias =
          NewGradientSums(context->saved_data["d_bias"].toTensor(), dy.size(1), dy.options());
      SumColumns(dy, d_bias.to);
      results[2] = d_bias.result;
    }
    return results;
  }
};

}  // namespace

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  WeightLayout layout) {
  const bool is_16_bit = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  if (!x.is_cuda() || !is_16_bit) return LinearTwin(x, weight, bias, layout);
  return FusedLinear::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt,
                            layout == WeightLayout::kInputsOutputs,
                            /*trains=*/at::GradMode::is_enabled());
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
  const GradientSums sums = NewGradientSums(/*to=*/{}, x.size(1), x.options());
  SumColumns(x, sums.to);
  return sums.result;
}

}  // namespace lockstep::ops
