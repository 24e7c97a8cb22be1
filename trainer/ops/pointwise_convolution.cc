#include "trainer/ops/pointwise_convolution.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/ops/matrix_product.h"
#include "trainer/ops/rounded_weight.h"
#include "trainer/ops/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

// [count, channels, height, width] channels last as [count height width, channels]: a view.
at::Tensor Rows(const at::Tensor& images) {
  return images.permute({0, 2, 3, 1}).view({-1, images.size(1)});
}

// The reverse, with x's sizes but for the channels. No view for autograd, which would forbid writing to it.
at::Tensor ImagesOf(const at::Tensor& x, const at::Tensor& rows) {
  return at::_unsafe_view(rows, {x.size(0), x.size(2), x.size(3), rows.size(1)})
      .permute({0, 3, 1, 2});
}

at::Tensor Product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor product = at::empty({a.size(0), b.size(1)}, a.options());
  MatrixProduct(product, a, b);
  return product;
}

// Whether nobody else has it, so that it may be written to.
bool IsOwn(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         tensor.is_contiguous(kLast);
}

// -> {convolved, x}
class FusedFork : public torch::autograd::Function<FusedFork> {
 public:
  static variable_list forward(AutogradContext* context, const Variable& x,
                               const Variable& weight) {
    const at::Tensor matrix =
        Rounded(weight, x.scalar_type()).view({weight.size(0), weight.size(1)});
    // Each serves the other's gradient.
    context->save_for_backward(
        {weight.requires_grad() ? x : at::Tensor(), x.requires_grad() ? matrix : at::Tensor()});
    context->saved_data["d_weight"] = GradientToAddTo(weight);
    context->set_materialize_grads(false);
    return {ImagesOf(x, Product(Rows(x), matrix.t())), x};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined()) return {gradients[1], {}};
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = Rows(gradients[0].contiguous(kLast));
    // A thread of autograd's may come to its first product without a context, of which ATen would warn.
    c10::cuda::set_device(dy.device().index(), /*force=*/true);
    variable_list results(2);
    if (context->needs_input_grad(0)) {
      const at::Tensor& matrix = saved[1];
      const at::Tensor& of_shortcut = gradients[1];
      if (!of_shortcut.defined()) {
        results[0] = ImagesOf(gradients[0], Product(dy, matrix));
      } else {
        results[0] = IsOwn(of_shortcut) ? of_shortcut : of_shortcut.clone(kLast);
        MatrixProduct(Rows(results[0]), dy, matrix, {.adds = true});
      }
    }
    if (context->needs_input_grad(1)) {
      const at::Tensor& x = saved[0];
      at::Tensor to = context->saved_data["d_weight"].toTensor();
      if (to.defined()) to = to.view({dy.size(1), x.size(1)});
      const at::Tensor d_weight = AddProduct(to, dy.t(), Rows(x));
      if (d_weight.defined()) results[1] = d_weight.view({dy.size(1), x.size(1), 1, 1});
    }
    return results;
  }
};

}  // namespace

Fork PointwiseConvolution(const at::Tensor& x, const at::Tensor& weight) {
  const bool is_16_bit = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  if (!x.is_cuda() || !is_16_bit || x.numel() == 0 || !x.is_contiguous(kLast)) {
    return PointwiseConvolutionTwin(x, weight);
  }
  const variable_list results = FusedFork::apply(x, weight);
  return {results[0], results[1]};
}

Fork PointwiseConvolutionTwin(const at::Tensor& x, const at::Tensor& weight) {
  return {at::conv2d(x, weight), x};
}

}  // namespace lockstep::ops
