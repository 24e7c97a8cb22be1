#include "ops/product/linear.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "ops/common/launch_arguments.h"
#include "ops/common/rounded_weight.h"
#include "ops/common/second_derivative.h"
#include "ops/product/linear_kernel.h"
#include "ops/product/linear_parts.h"
#include "ops/product/matrix_product.h"
#include "ops/product/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Enqueues the kernels that write the sum of each column of x to `to`. x may have no rows, and must be float32, float16
// or bfloat16.
void SumColumns(const at::Tensor& x, const SumsTo& to) {
  const c10::DeviceGuard guard(x.device());
  const at::Tensor rows = x.contiguous();
  const RowsShape shape = RowsShapeOf(rows);
  const int64_t slices = ColumnSumSlices(rows.const_data_ptr(), TypeOf(x), shape);
  const at::Tensor partials = at::empty({slices, shape.width}, x.options().dtype(at::kFloat));
  Launch(x, [&](cudaStream_t stream) {
    LaunchColumnSums(rows.const_data_ptr(), TypeOf(x), partials.mutable_data_ptr<float>(), to,
                     shape, stream);
  });
}

// Returns the gradient of x, dy W^T, as a tensor with x's sizes. `of_others` is undefined, or the gradient from other
// operations that read x, which is added.
at::Tensor InputGradient(const at::Tensor& like, const at::Tensor& dy, const at::Tensor& matrix,
                         const at::Tensor& of_others) {
  if (!of_others.defined()) {
    return WithRowsOf(like, MatrixProduct(dy, matrix.t(), dy.scalar_type()));
  }
  const bool is_usable = IsOwn(of_others) && of_others.is_contiguous();
  const at::Tensor sum = is_usable ? of_others : of_others.clone(at::MemoryFormat::Contiguous);
  MatrixProduct(Rows(sum), dy, matrix.t(), {.adds = true});
  return sum;
}

// Computes y, and if `forks` is true also x itself.
class FusedLinear : public torch::autograd::Function<FusedLinear> {
 public:
  static variable_list forward(AutogradContext* context, const Variable& x, const Variable& weight,
                               const std::optional<Variable>& bias, bool inputs_first, bool trains,
                               bool forks) {
    const WeightLayout layout =
        inputs_first ? WeightLayout::kInputsOutputs : WeightLayout::kOutputsInputs;
    const at::Tensor rows = Rows(x);
    const at::Tensor rounded = Rounded(weight, x.scalar_type());
    const at::Tensor matrix = WeightMatrix(rounded, layout);
    // y is allocated with all its dimensions. If y were a view of a matrix, autograd would forbid in-place changes of y
    // where this Function returns two results.
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = matrix.size(1);
    const at::Tensor y = at::empty(sizes, x.options());
    MatrixProduct(Rows(y), rows, matrix,
                  {.bias = bias ? bias->to(x.scalar_type()) : at::Tensor(), .searches = trains});
    // The gradient of x needs the weight, and the gradient of the weight needs x.
    context->save_for_backward(
        {weight.requires_grad() ? x : at::Tensor(), x.requires_grad() ? rounded : at::Tensor()});
    context->saved_data["weight"] = weight;
    context->saved_data["bias"] = bias ? *bias : at::Tensor();
    context->saved_data["inputs_first"] = inputs_first;
    context->saved_data["d_weight"] = GradientToAddTo(weight);
    if (bias) context->saved_data["d_bias"] = GradientToAddTo(*bias);
    context->set_materialize_grads(!forks);
    return forks ? variable_list{y, x} : variable_list{y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const bool inputs_first = context->saved_data["inputs_first"].toBool();
    const WeightLayout layout =
        inputs_first ? WeightLayout::kInputsOutputs : WeightLayout::kOutputsInputs;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor bias = context->saved_data["bias"].toTensor();
    const at::Tensor none;
    const at::Tensor& of_others = gradients.size() > 1 ? gradients[1] : none;
    variable_list results(6);
    if (!gradients[0].defined()) {
      results[0] = of_others;
      return results;
    }
    if (IsDifferentiatedAgain()) {
      const at::Tensor weight = context->saved_data["weight"].toTensor();
      const int64_t inputs = weight.size(inputs_first ? 0 : 1);
      const at::Tensor x = saved[0].defined() ? saved[0] : InPlaceOfInput(gradients[0], -1, inputs);
      const auto twin = [&](const variable_list& of) {
        return LinearTwin(of[0], of[1], of[2], layout);
      };
      std::ranges::copy(GradientsOfTwin({x, weight, bias}, gradients[0], twin), results.begin());
      if (of_others.defined()) {
        results[0] = results[0].defined() ? results[0] + of_others : of_others;
      }
      return results;
    }
    const at::Tensor dy = Rows(gradients[0]).contiguous();
    if (context->needs_input_grad(0)) {
      results[0] = InputGradient(gradients[0], dy, WeightMatrix(saved[1], layout), of_others);
    }
    if (context->needs_input_grad(1)) {
      results[1] =
          WeightGradient(context->saved_data["d_weight"].toTensor(), Rows(saved[0]), dy, layout);
    }
    // Without a bias the Function has no input number 2.
    if (bias.defined() && context->needs_input_grad(2)) {
      results[2] = BiasGradient(context->saved_data["d_bias"].toTensor(), dy);
    }
    return results;
  }
};

variable_list Apply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    WeightLayout layout, bool forks) {
  return FusedLinear::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt,
                            layout == WeightLayout::kInputsOutputs,
                            /*trains=*/at::GradMode::is_enabled(), forks);
}

}  // namespace

at::Tensor WeightMatrix(const at::Tensor& weight, WeightLayout layout) {
  return layout == WeightLayout::kInputsOutputs ? weight : weight.t();
}

at::Tensor Rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor WithRowsOf(const at::Tensor& x, const at::Tensor& rows) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = rows.size(1);
  return at::_unsafe_view(rows, sizes);
}

at::Tensor WeightGradient(const at::Tensor& to, const at::Tensor& x, const at::Tensor& dy,
                          WeightLayout layout) {
  return layout == WeightLayout::kInputsOutputs ? AddProduct(to, x.t(), dy)
                                                : AddProduct(to, dy.t(), x);
}

at::Tensor BiasGradient(const at::Tensor& to, const at::Tensor& dy) {
  const GradientSums d_bias = NewGradientSums(to, dy.size(1), dy.options());
  SumColumns(dy, d_bias.to);
  return d_bias.result;
}

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  WeightLayout layout) {
  if (!IsOnGpu(x) || !Is16Bit(x)) return LinearTwin(x, weight, bias, layout);
  return Apply(x.contiguous(), weight, bias, layout, /*forks=*/false)[0];
}

LinearFork ForkedLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        WeightLayout layout) {
  // If x needs no gradient, the second result must not depend on the Function: backward would otherwise wait for its
  // gradient.
  const bool forks = IsOnGpu(x) && Is16Bit(x) && x.is_contiguous() && x.requires_grad();
  if (!forks) return {Linear(x, weight, bias, layout), x};
  const variable_list results = Apply(x, weight, bias, layout, /*forks=*/true);
  return {results[0], results[1]};
}

at::Tensor LinearTwin(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      WeightLayout layout) {
  const at::ScalarType type = x.scalar_type();
  return at::linear(x, WeightMatrix(weight.to(type), layout).t(),
                    bias.defined() ? std::optional(bias.to(type)) : std::nullopt);
}

at::Tensor ColumnSums(const at::Tensor& x) {
  if (!IsOnGpu(x) || !IsFloatType(x.scalar_type()) || x.numel() == 0) {
    return at::sum(x.detach(), {0}, /*keepdim=*/false, at::kFloat);
  }
  const GradientSums sums = NewGradientSums(/*to=*/{}, x.size(1), x.options());
  SumColumns(x, sums.to);
  return sums.result;
}

}  // namespace lockstep::ops
