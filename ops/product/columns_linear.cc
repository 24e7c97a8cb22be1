#include "ops/product/columns_linear.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "ops/common/launch_arguments.h"
#include "ops/common/rounded_weight.h"
#include "ops/common/second_derivative.h"
#include "ops/product/linear.h"
#include "ops/product/linear_parts.h"
#include "ops/product/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Returns a new tensor [count, rows, columns] that lies by columns.
at::Tensor NewColumns(int64_t count, int64_t rows, int64_t columns, const at::Tensor& like) {
  return at::empty_strided({count, rows, columns}, {rows * columns, 1, rows}, like.options());
}

// Returns the products of the matrices a, [count, m, k], and b, [count, k, n], in float32.
at::Tensor Products(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor products = at::empty({a.size(0), a.size(1), b.size(2)}, a.options().dtype(at::kFloat));
  if (!a.is_meta()) at::bmm_out(products, a, b, at::kFloat);
  return products;
}

class ColumnsFunction : public torch::autograd::Function<ColumnsFunction> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          const std::optional<Variable>& bias) {
    const at::Tensor rounded = Rounded(weight, x.scalar_type());
    const at::Tensor y = NewColumns(x.size(0), x.size(1), weight.size(0), x);
    at::Tensor columns = y.transpose(1, 2);
    at::bmm_out(columns, rounded.expand({x.size(0), -1, -1}), x.transpose(1, 2));
    if (bias) columns.add_(bias->to(x.scalar_type()).unsqueeze(1));
    context->save_for_backward(
        {weight.requires_grad() ? x : at::Tensor(), x.requires_grad() ? rounded : at::Tensor()});
    context->saved_data["weight"] = weight;
    context->saved_data["bias"] = bias ? *bias : at::Tensor();
    context->saved_data["d_weight"] = GradientToAddTo(weight);
    if (bias) context->saved_data["d_bias"] = GradientToAddTo(*bias);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor weight = context->saved_data["weight"].toTensor();
    const at::Tensor bias = context->saved_data["bias"].toTensor();
    variable_list results(3);
    if (IsDifferentiatedAgain()) {
      const at::Tensor x =
          saved[0].defined() ? saved[0] : InPlaceOfInput(gradients[0], -1, weight.size(1));
      const auto twin = [](const variable_list& of) {
        return LinearTwin(of[0], of[1], of[2], WeightLayout::kOutputsInputs);
      };
      std::ranges::copy(GradientsOfTwin({x, weight, bias}, gradients[0], twin), results.begin());
      return results;
    }
    const c10::DeviceGuard guard(gradients[0].device());
    const at::Tensor dy = gradients[0].transpose(1, 2).contiguous();
    const int64_t count = dy.size(0);
    if (context->needs_input_grad(0)) {
      results[0] = NewColumns(count, dy.size(2), weight.size(1), dy);
      at::Tensor columns = results[0].transpose(1, 2);
      at::bmm_out(columns, saved[1].t().expand({count, -1, -1}), dy);
    }
    if (context->needs_input_grad(1)) {
      const at::Tensor products = Products(dy, saved[0]);
      const at::Tensor sum =
          BiasGradient(context->saved_data["d_weight"].toTensor(), products.flatten(1));
      if (sum.defined()) results[1] = sum.view(weight.sizes());
    }
    if (bias.defined() && context->needs_input_grad(2)) {
      const at::Tensor sum = at::sum(dy, at::IntArrayRef{0, 2}, /*keepdim=*/false, at::kFloat);
      const at::Tensor to = context->saved_data["d_bias"].toTensor();
      if (to.defined()) {
        AddGradient(to, sum);
      } else {
        results[2] = sum;
      }
    }
    return results;
  }
};

}  // namespace

bool IsForColumnsLinear(const at::Tensor& x, const at::Tensor& weight) {
  constexpr int64_t kRank = 3;
  if (!IsOnGpu(x) || !Is16Bit(x) || x.dim() != kRank || x.numel() == 0 || x.is_contiguous() ||
      !x.transpose(1, 2).is_contiguous()) {
    return false;
  }
  return weight.numel() <= x.size(1) * (weight.size(0) + weight.size(1));
}

at::Tensor ColumnsLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!IsOnGpu(x) || !Is16Bit(x)) {
    return LinearTwin(x, weight, bias, WeightLayout::kOutputsInputs);
  }
  return ColumnsFunction::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

}  // namespace lockstep::ops
