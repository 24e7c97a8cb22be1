#include "ops/convolution/pointwise_convolution.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/common/launch_arguments.h"
#include "ops/common/rounded_weight.h"
#include "ops/common/second_derivative.h"
#include "ops/product/matrix_product.h"
#include "ops/product/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

// Returns channels-last images [count, channels, height, width] as a view [count * height * width, channels].
at::Tensor Rows(const at::Tensor& images) {
  return images.permute({0, 2, 3, 1}).view({-1, images.size(1)});
}

// Returns the matrix `rows` as channels-last images with the count, height and width of x. This is the reverse of
// Rows().
at::Tensor ImagesOf(const at::Tensor& x, const at::Tensor& rows) {
  return at::_unsafe_view(rows, {x.size(0), x.size(2), x.size(3), rows.size(1)})
      .permute({0, 3, 1, 2});
}

// Computes the members of Fork: {convolved, x}.
class FusedFork : public torch::autograd::Function<FusedFork> {
 public:
  static variable_list forward(AutogradContext* context, const Variable& x,
                               const Variable& weight) {
    const at::Tensor matrix =
        Rounded(weight, x.scalar_type()).view({weight.size(0), weight.size(1)});
    // The gradient of x needs the weight, and the gradient of the weight needs x.
    context->save_for_backward(
        {weight.requires_grad() ? x : at::Tensor(), x.requires_grad() ? matrix : at::Tensor()});
    context->saved_data["weight"] = weight;
    context->saved_data["d_weight"] = GradientToAddTo(weight);
    context->set_materialize_grads(false);
    // y is allocated as images. If y were a view of a matrix, autograd would forbid in-place changes of y, because this
    // Function returns two results.
    const at::Tensor y =
        at::empty({x.size(0), weight.size(0), x.size(2), x.size(3)}, x.options(), kLast);
    MatrixProduct(Rows(y), Rows(x), matrix.t());
    return {y, x};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined()) return {gradients[1], {}};
    const variable_list saved = context->get_saved_variables();
    if (IsDifferentiatedAgain()) {
      const at::Tensor weight = context->saved_data["weight"].toTensor();
      const at::Tensor x =
          saved[0].defined() ? saved[0] : InPlaceOfInput(gradients[0], 1, weight.size(1));
      const auto twin = [](const variable_list& of) {
        return at::conv2d(of[0], of[1].to(of[0].scalar_type()));
      };
      variable_list results = GradientsOfTwin({x, weight}, gradients[0], twin);
      if (gradients[1].defined()) results[0] = results[0] + gradients[1];
      return results;
    }
    const at::Tensor dy = Rows(gradients[0].contiguous(kLast));
    variable_list results(2);
    if (context->needs_input_grad(0)) {
      const at::Tensor& matrix = saved[1];
      const at::Tensor& of_shortcut = gradients[1];
      if (!of_shortcut.defined()) {
        results[0] = ImagesOf(gradients[0], MatrixProduct(dy, matrix, dy.scalar_type()));
      } else {
        const bool is_usable = IsOwn(of_shortcut) && of_shortcut.is_contiguous(kLast);
        results[0] = is_usable ? of_shortcut : of_shortcut.clone(kLast);
        MatrixProduct(Rows(results[0]), dy, matrix, {.adds = true});
      }
    }
    if (context->needs_input_grad(1)) {
      const at::Tensor& x = saved[0];
      const at::Tensor d_weight =
          AddProduct(context->saved_data["d_weight"].toTensor(), dy.t(), Rows(x));
      if (d_weight.defined()) results[1] = d_weight.view({dy.size(1), x.size(1), 1, 1});
    }
    return results;
  }
};

}  // namespace

Fork PointwiseConvolution(const at::Tensor& x, const at::Tensor& weight) {
  if (!IsOnGpu(x) || !Is16Bit(x) || x.numel() == 0 || !x.is_contiguous(kLast)) {
    return PointwiseConvolutionTwin(x, weight);
  }
  const variable_list results = FusedFork::apply(x, weight);
  // If x needs no gradient, the shortcut must not depend on this Function: backward would otherwise wait for the
  // shortcut's gradient.
  return {results[0], x.requires_grad() ? results[1] : x};
}

Fork PointwiseConvolutionTwin(const at::Tensor& x, const at::Tensor& weight) {
  return {at::conv2d(x, weight), x};
}

}  // namespace lockstep::ops
