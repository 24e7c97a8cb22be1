#include "ops/product/feed_forward.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <optional>
#include <vector>

#include "ops/common/launch_arguments.h"
#include "ops/common/rounded_weight.h"
#include "ops/product/bias_activation.h"
#include "ops/product/feed_forward_kernel.h"
#include "ops/product/linear.h"
#include "ops/product/linear_parts.h"
#include "ops/product/matrix_product.h"
#include "ops/product/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr WeightLayout kFusedLayout = WeightLayout::kInputsOutputs;

// Returns the shape of the product of `a` ([rows, width]) with a matrix [width, hidden].
HiddenShape ShapeOf(const at::Tensor& a, int64_t hidden) {
  const RowsShape shape = RowsShapeOf(a);
  return {.rows = shape.rows,
          .width = shape.width,
          .hidden = hidden,
          .device = a.device().index(),
          .multiprocessors = shape.multiprocessors};
}

void Check(const char* error, const HiddenShape& shape) {
  TORCH_CHECK(error == nullptr, "the product of [", shape.rows, ", ", shape.width, "] with [",
              shape.width, ", ", shape.hidden, "] and its activation: CUTLASS says ", error);
}

// Returns the tensor in the layout that the kernels read: contiguous, at an address that is a multiple of 16 bytes.
at::Tensor ForKernel(const at::Tensor& tensor) { return Aligned(tensor.contiguous()); }

struct Hidden {
  at::Tensor inner;  // x W + b, rounded; undefined if it is not wanted
  at::Tensor hidden;
};

// Computes the hidden layer. `x` is [rows, inputs], and `fc` has x's type.
Hidden HiddenOf(const at::Tensor& x, const at::Tensor& fc, const at::Tensor& fc_bias,
                bool wants_inner) {
  // The event makes the product visible to profilers under the name of MatrixProduct()'s events.
  RECORD_FUNCTION(kMatrixProductEvent, std::vector<c10::IValue>({x, fc}));
  const HiddenShape shape = ShapeOf(x, fc.size(1));
  const at::Tensor hidden = at::empty({shape.rows, shape.hidden}, x.options());
  const at::Tensor inner = wants_inner ? at::empty_like(hidden) : at::Tensor();
  const at::Tensor bias = ForKernel(fc_bias);
  Launch(x, [&](cudaStream_t stream) {
    Check(LaunchHidden({.x = x.const_data_ptr(),
                        .weight = fc.const_data_ptr(),
                        .bias = bias.const_data_ptr<float>(),
                        .inner = wants_inner ? inner.mutable_data_ptr() : nullptr,
                        .hidden = hidden.mutable_data_ptr()},
                       TypeOf(x), shape, stream),
          shape);
  });
  return {inner, hidden};
}

// Returns the gradient of `inner`, and writes the sums over this gradient's rows to `d_bias`. `dy` is [rows, outputs],
// and `out` has dy's type.
at::Tensor InnerGradient(const at::Tensor& dy, const at::Tensor& out, const at::Tensor& inner,
                         const SumsTo& d_bias) {
  RECORD_FUNCTION(kMatrixProductEvent, std::vector<c10::IValue>({dy, out.t()}));
  const HiddenShape shape = ShapeOf(dy, inner.size(1));
  const at::Tensor d_inner = at::empty_like(inner);
  const at::Tensor partials = at::empty({HiddenPartials(shape)}, dy.options().dtype(at::kFloat));
  Launch(dy, [&](cudaStream_t stream) {
    Check(LaunchHiddenBackward({.dy = dy.const_data_ptr(),
                                .weight = out.const_data_ptr(),
                                .inner = inner.const_data_ptr(),
                                .d_inner = d_inner.mutable_data_ptr(),
                                .partials = partials.mutable_data_ptr<float>(),
                                .d_bias = d_bias},
                               TypeOf(dy), shape, stream),
          shape);
  });
  return d_inner;
}

class FusedFeedForward : public torch::autograd::Function<FusedFeedForward> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& fc,
                          const Variable& fc_bias, const Variable& out,
                          const std::optional<Variable>& out_bias, bool trains) {
    const c10::DeviceGuard guard(x.device());
    const at::ScalarType type = x.scalar_type();
    const bool reaches_inner =
        trains && (x.requires_grad() || fc.requires_grad() || fc_bias.requires_grad());
    const at::Tensor rows = ForKernel(Rows(x));
    const at::Tensor rounded_fc = ForKernel(Rounded(fc, type));
    const at::Tensor rounded_out = ForKernel(Rounded(out, type));
    const auto [inner, hidden] = HiddenOf(rows, rounded_fc, fc_bias, reaches_inner);
    const at::Tensor y = at::empty({rows.size(0), rounded_out.size(1)}, x.options());
    MatrixProduct(y, hidden, rounded_out,
                  {.bias = out_bias ? out_bias->to(type) : at::Tensor(), .searches = trains});
    // Backward needs `rows` for the gradient of fc, rounded_fc for that of x, `inner` and rounded_out for those of
    // inner and fc_bias, and `hidden` for that of out.
    context->save_for_backward({fc.requires_grad() ? rows : at::Tensor(),
                                x.requires_grad() ? rounded_fc : at::Tensor(), inner,
                                reaches_inner ? rounded_out : at::Tensor(),
                                out.requires_grad() ? hidden : at::Tensor()});
    context->saved_data["has_out_bias"] = out_bias.has_value();
    context->saved_data["d_fc"] = GradientToAddTo(fc);
    context->saved_data["d_fc_bias"] = GradientToAddTo(fc_bias);
    context->saved_data["d_out"] = GradientToAddTo(out);
    if (out_bias) context->saved_data["d_out_bias"] = GradientToAddTo(*out_bias);
    return WithRowsOf(x, y);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const c10::DeviceGuard guard(gradients[0].device());
    const auto to = [&](const char* name) { return context->saved_data[name].toTensor(); };
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &fc = saved[1], &inner = saved[2], &out = saved[3],
                     &hidden = saved[4];
    const at::Tensor dy = ForKernel(Rows(gradients[0]));
    variable_list results(6);
    if (context->needs_input_grad(3)) {
      results[3] = WeightGradient(to("d_out"), hidden, dy, kFusedLayout);
    }
    // Without out_bias the Function has no input number 4.
    if (context->saved_data["has_out_bias"].toBool() && context->needs_input_grad(4)) {
      results[4] = BiasGradient(to("d_out_bias"), dy);
    }
    const bool wants_x = context->needs_input_grad(0);
    const bool wants_fc = context->needs_input_grad(1);
    const bool wants_bias = context->needs_input_grad(2);
    if (!wants_x && !wants_fc && !wants_bias) return results;

    GradientSums d_bias;
    if (wants_bias) d_bias = NewGradientSums(to("d_fc_bias"), inner.size(1), dy.options());
    const at::Tensor d_inner = InnerGradient(dy, out, inner, d_bias.to);
    results[2] = d_bias.result;
    if (wants_x) {
      const at::Tensor dx = MatrixProduct(d_inner, fc.t(), dy.scalar_type());
      results[0] = WithRowsOf(gradients[0], dx);
    }
    if (wants_fc) results[1] = WeightGradient(to("d_fc"), x, d_inner, kFusedLayout);
    return results;
  }
};

}  // namespace

bool HasFusedFeedForward(const at::Tensor& x, const FeedForwardWeights& weights,
                         WeightLayout layout, Activation activation) {
  if (!IsOnGpu(x) || !Is16Bit(x) || x.dim() == 0 || x.numel() == 0) return false;
  if (activation != Activation::kGeluTanh || layout != kFusedLayout) return false;
  const auto is_matrix = [&](const at::Tensor& weight) {
    return weight.scalar_type() == at::kFloat && weight.device() == x.device() &&
           weight.dim() == 2 && weight.is_contiguous();
  };
  if (!is_matrix(weights.fc) || !is_matrix(weights.out)) return false;
  const int64_t inputs = x.size(-1);
  const int64_t hidden = weights.fc.size(1);
  const int64_t outputs = weights.out.size(1);
  const bool fits = weights.fc.size(0) == inputs && IsFloatVector(weights.fc_bias, hidden, x) &&
                    weights.out.size(0) == hidden && outputs > 0 &&
                    (!weights.out_bias.defined() || IsFloatVector(weights.out_bias, outputs, x));
  if (!fits || inputs % 8 != 0 || hidden % 8 != 0 || outputs % 8 != 0) return false;
  const int64_t rows = x.numel() / inputs;
  const GpuTraits gpu = TraitsOf(x.device());
  return gpu.major == 9 && gpu.minor == 0 && rows <= std::numeric_limits<int>::max() &&
         HiddenTiles(rows, hidden) >= gpu.multiprocessors;
}

at::Tensor FeedForward(const at::Tensor& x, const FeedForwardWeights& weights, WeightLayout layout,
                       Activation activation) {
  if (!HasFusedFeedForward(x, weights, layout, activation)) {
    const at::Tensor inner = Linear(x, weights.fc, /*bias=*/{}, layout);
    const at::Tensor hidden = BiasActivation(inner, weights.fc_bias, activation);
    return Linear(hidden, weights.out, weights.out_bias, layout);
  }
  return FusedFeedForward::apply(
      x, weights.fc, weights.fc_bias, weights.out,
      weights.out_bias.defined() ? std::optional(weights.out_bias) : std::nullopt,
      /*trains=*/at::GradMode::is_enabled());
}

at::Tensor FeedForwardTwin(const at::Tensor& x, const FeedForwardWeights& weights,
                           WeightLayout layout, Activation activation) {
  const at::Tensor inner = LinearTwin(x, weights.fc, /*bias=*/{}, layout);
  const at::Tensor hidden = BiasActivationTwin(inner, weights.fc_bias, activation);
  return LinearTwin(hidden, weights.out, weights.out_bias, layout);
}

}  // namespace lockstep::ops
