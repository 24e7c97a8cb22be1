#include "ops/norm/layer_norm.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "ops/common/launch_arguments.h"
#include "ops/norm/layer_norm_kernel.h"
#include "ops/product/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Returns whether the kernels support x and these weights.
bool IsFused(const at::Tensor& x, at::TensorList weights) {
  if (!IsOnGpu(x) || !IsFloatType(x.scalar_type()) || x.dim() == 0 || x.size(-1) == 0) {
    return false;
  }
  return std::all_of(weights.begin(), weights.end(), [&](const at::Tensor& weight) {
    return IsFloatVector(weight, x.size(-1), x);
  });
}

// Returns whether the kernels, if they support x, can add the branch to x. `type` is the type that the branch must
// have.
bool CanAdd(const at::Tensor& x, const Branch& branch, at::ScalarType type) {
  return branch.values.sizes() == x.sizes() && branch.values.scalar_type() == type &&
         branch.values.device() == x.device() &&
         (!branch.bias.defined() || IsFloatVector(branch.bias, x.size(-1), x));
}

// The results of a norm that are wanted.
struct Results {
  at::ScalarType type;  // the type of y
  bool wide = false;    // whether y is also wanted in x's type, if x's type is not `type`
};

// Computes LayerNorm, or RMSNorm if there is no bias. The results are {y}, or {sum, y} if there is a branch, followed
// by y in x's type if Results::wide is true.
class FusedNorm : public torch::autograd::Function<FusedNorm> {
 public:
  static variable_list forward(AutogradContext* context, const Variable& x, const Variable& weight,
                               const std::optional<Variable>& bias,
                               const std::optional<Variable>& branch,
                               const std::optional<Variable>& branch_bias, double epsilon,
                               const Results& results) {
    const c10::DeviceGuard guard(x.device());
    const RowsShape shape = RowsShapeOf(x);
    const at::Tensor sum = branch ? at::empty_like(x) : at::Tensor();
    const at::Tensor y = at::empty_like(x, x.options().dtype(results.type));
    const at::Tensor wide = results.wide ? at::empty_like(x) : at::Tensor();
    const at::Tensor statistics = at::empty({shape.rows, 2}, x.options().dtype(at::kFloat));
    Launch(x, [&](cudaStream_t stream) {
      LaunchLayerNorm(
          {.x = x.const_data_ptr(),
           .branch = branch ? branch->const_data_ptr() : nullptr,
           .branch_bias = branch_bias ? branch_bias->const_data_ptr<float>() : nullptr,
           .weight = weight.const_data_ptr<float>(),
           .bias = bias ? bias->const_data_ptr<float>() : nullptr,
           .epsilon = static_cast<float>(epsilon),
           .sum = sum.defined() ? sum.mutable_data_ptr() : nullptr,
           .y = y.mutable_data_ptr(),
           .y_wide = wide.defined() ? wide.mutable_data_ptr() : nullptr,
           .statistics = reinterpret_cast<RowStatistics*>(statistics.mutable_data_ptr<float>())},
          /*centers=*/bias.has_value(), {TypeOf(x), TypeOf(y)}, shape, stream);
    });
    context->set_materialize_grads(false);
    context->save_for_backward({sum.defined() ? sum : x, weight, statistics});
    context->saved_data["d_weight"] = GradientToAddTo(weight);
    context->saved_data["centers"] = bias.has_value();
    if (bias) context->saved_data["d_bias"] = GradientToAddTo(*bias);
    context->saved_data["adds"] = branch.has_value();
    context->saved_data["has_branch_bias"] = branch_bias.has_value();
    if (branch_bias) context->saved_data["d_branch_bias"] = GradientToAddTo(*branch_bias);
    context->saved_data["type"] = results.type;
    variable_list made;
    if (sum.defined()) made.push_back(sum);
    made.push_back(y);
    if (wide.defined()) made.push_back(wide);
    return made;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const bool adds = context->saved_data["adds"].toBool();
    const bool centers = context->saved_data["centers"].toBool();
    const at::ScalarType type = context->saved_data["type"].toScalarType();
    // needs_input_grad() counts only the inputs that are present, so the index of the branch depends on whether there
    // is a bias.
    const size_t branch_input = centers ? 3 : 2;
    const bool wants_branch_bias = context->saved_data["has_branch_bias"].toBool() &&
                                   context->needs_input_grad(branch_input + 1);
    const size_t first = adds ? 1 : 0;
    const at::Tensor d_sum = adds ? gradients[0] : at::Tensor();
    const at::Tensor d_wide = gradients.size() > first + 1 ? gradients[first + 1] : at::Tensor();
    if (!gradients[first].defined() && !d_wide.defined()) {
      at::Tensor d_branch_bias;
      if (wants_branch_bias) {
        d_branch_bias = d_sum.flatten(0, -2).sum(0, /*keepdim=*/false, at::kFloat);
      }
      return {d_sum, {}, {}, d_sum.defined() ? d_sum.to(type) : d_sum, d_branch_bias, {}, {}};
    }
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const c10::DeviceGuard guard(x.device());
    const RowsShape shape = RowsShapeOf(x);
    const auto sums = [&](bool wanted, const char* name) {
      if (!wanted) return GradientSums();
      return NewGradientSums(context->saved_data[name].toTensor(), shape.width, x.options());
    };
    const auto in_rows = [](const at::Tensor& gradient) {
      return gradient.defined() ? gradient.contiguous() : gradient;
    };
    const at::Tensor dy = in_rows(gradients[first]);
    const at::Tensor dy_wide = in_rows(d_wide);
    const at::Tensor added = in_rows(d_sum);
    const at::Tensor dx = at::empty_like(x);
    at::Tensor d_branch;
    if (adds && context->needs_input_grad(branch_input)) {
      d_branch = type == x.scalar_type() ? dx : at::empty_like(x, x.options().dtype(type));
    }
    const GradientSums d_weight = sums(context->needs_input_grad(1), "d_weight");
    const GradientSums d_bias = sums(centers && context->needs_input_grad(2), "d_bias");
    const GradientSums d_branch_bias = sums(wants_branch_bias, "d_branch_bias");
    at::Tensor partials;
    if (d_weight.to.sums || d_bias.to.sums || d_branch_bias.to.sums) {
      partials = at::empty({LayerNormPartialRows(shape), LayerNormBackward::kParts, shape.width},
                           x.options().dtype(at::kFloat));
    }
    const auto read = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.const_data_ptr() : nullptr;
    };
    Launch(x, [&](cudaStream_t stream) {
      LaunchLayerNormBackward(
          {.x = x.const_data_ptr(),
           .dy = read(dy),
           .dy_wide = read(dy_wide),
           .d_sum = read(added),
           .weight = saved[1].const_data_ptr<float>(),
           .statistics = reinterpret_cast<const RowStatistics*>(saved[2].const_data_ptr<float>()),
           .dx = dx.mutable_data_ptr(),
           .d_branch = d_branch.defined() ? d_branch.mutable_data_ptr() : nullptr,
           .partials = partials.defined() ? partials.mutable_data_ptr<float>() : nullptr,
           .d_weight = d_weight.to,
           .d_bias = d_bias.to,
           .d_branch_bias = d_branch_bias.to},
          centers, {TypeOf(x), TypeOf(type)}, shape, stream);
    });
    return {dx, d_weight.result, d_bias.result, d_branch, d_branch_bias.result, {}, {}};
  }
};

variable_list Fused(const at::Tensor& x, const Branch& branch, const at::Tensor& weight,
                    const at::Tensor& bias, double epsilon, const Results& results) {
  const auto given = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional<Variable>(tensor.contiguous()) : std::nullopt;
  };
  return FusedNorm::apply(x.contiguous(), weight.contiguous(), given(bias), given(branch.values),
                          given(branch.bias), epsilon, results);
}

// Returns the type in which the plain ATen implementations (the twins) normalise.
at::ScalarType ArithmeticType(const at::Tensor& x) {
  return Is16Bit(x) ? at::kFloat : x.scalar_type();
}

at::Tensor SumTwin(const at::Tensor& x, const Branch& branch) {
  at::Tensor added = branch.values;
  // The bias is float32, so both additions are computed in float32, as in the kernel.
  if (branch.bias.defined()) added = added + branch.bias;
  return (x + added).to(x.scalar_type());
}

}  // namespace

at::Tensor LayerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon) {
  if (!IsFused(x, {weight, bias})) return LayerNormTwin(x, weight, bias, epsilon);
  return Fused(x, {}, weight, bias, epsilon, {x.scalar_type()})[0];
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (!IsFused(x, {weight})) return RmsNormTwin(x, weight, epsilon);
  return Fused(x, {}, weight, {}, epsilon, {x.scalar_type()})[0];
}

std::pair<at::Tensor, at::Tensor> AddLayerNorm(const at::Tensor& x, const Branch& branch,
                                               const at::Tensor& weight, const at::Tensor& bias,
                                               double epsilon) {
  if (!IsFused(x, {weight, bias}) || !CanAdd(x, branch, x.scalar_type())) {
    return AddLayerNormTwin(x, branch, weight, bias, epsilon);
  }
  const variable_list results = Fused(x, branch, weight, bias, epsilon, {x.scalar_type()});
  return {results[0], results[1]};
}

std::pair<at::Tensor, at::Tensor> AddRmsNorm(const at::Tensor& x, const Branch& branch,
                                             const at::Tensor& weight, double epsilon) {
  if (!IsFused(x, {weight}) || !CanAdd(x, branch, x.scalar_type())) {
    return AddRmsNormTwin(x, branch, weight, epsilon);
  }
  const variable_list results = Fused(x, branch, weight, {}, epsilon, {x.scalar_type()});
  return {results[0], results[1]};
}

WideNorm NormOfWide(const at::Tensor& x, const Branch& branch, const at::Tensor& weight,
                    const at::Tensor& bias, double epsilon, at::ScalarType type, bool wide) {
  const bool adds = branch.values.defined();
  const bool is_fused =
      IsFused(x, {weight, bias.defined() ? bias : weight}) && x.scalar_type() == at::kFloat &&
      (type == at::kHalf || type == at::kBFloat16) && (!adds || CanAdd(x, branch, type));
  if (!is_fused) return NormOfWideTwin(x, branch, weight, bias, epsilon, type);
  const variable_list results = Fused(x, branch, weight, bias, epsilon, {type, wide});
  const size_t first = adds ? 1 : 0;
  return {.sum = adds ? results[0] : x,
          .y = results[first],
          .wide = wide ? results[first + 1] : at::Tensor()};
}

at::Tensor LayerNormTwin(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         double epsilon) {
  const at::ScalarType type = ArithmeticType(x);
  return at::layer_norm(x.to(type), {x.size(-1)}, weight.to(type), bias.to(type), epsilon)
      .to(x.scalar_type());
}

at::Tensor RmsNormTwin(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::ScalarType type = ArithmeticType(x);
  return at::rms_norm(x.to(type), {x.size(-1)}, weight.to(type), epsilon).to(x.scalar_type());
}

std::pair<at::Tensor, at::Tensor> AddLayerNormTwin(const at::Tensor& x, const Branch& branch,
                                                   const at::Tensor& weight, const at::Tensor& bias,
                                                   double epsilon) {
  const at::Tensor sum = SumTwin(x, branch);
  return {sum, LayerNormTwin(sum, weight, bias, epsilon)};
}

WideNorm NormOfWideTwin(const at::Tensor& x, const Branch& branch, const at::Tensor& weight,
                        const at::Tensor& bias, double epsilon, at::ScalarType type) {
  const at::Tensor sum = branch.values.defined() ? SumTwin(x, branch) : x;
  const at::Tensor wide = bias.defined() ? LayerNormTwin(sum, weight, bias, epsilon)
                                         : RmsNormTwin(sum, weight, epsilon);
  return {.sum = sum, .y = wide.to(type), .wide = wide};
}

std::pair<at::Tensor, at::Tensor> AddRmsNormTwin(const at::Tensor& x, const Branch& branch,
                                                 const at::Tensor& weight, double epsilon) {
  const at::Tensor sum = SumTwin(x, branch);
  return {sum, RmsNormTwin(sum, weight, epsilon)};
}

}  // namespace lockstep::ops
