#include "trainer/ops/convolution/convolution.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trainer/ops/common/launch_arguments.h"
#include "trainer/ops/common/rounded_weight.h"
#include "trainer/ops/common/second_derivative.h"
#include "trainer/ops/convolution/convolution_planner.h"
#include "trainer/ops/convolution/pointwise_convolution.h"
#include "trainer/ops/product/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

class FusedConvolution : public torch::autograd::Function<FusedConvolution> {
 public:
  // trains: a backward may follow.
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          int64_t stride, int64_t padding, bool trains) {
    const at::Tensor rounded = Rounded(weight, x.scalar_type());
    // Each serves the other's gradient.
    context->save_for_backward({x, rounded});
    context->saved_data["weight"] = weight;
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["d_weight"] = GradientToAddTo(weight);
    return PlannedConvolution(x, rounded,
                              {.stride = stride, .padding = padding, .searches = trains});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const c10::DeviceGuard guard(x.device());
    const ConvolutionOptions options{.stride = context->saved_data["stride"].toInt(),
                                     .padding = context->saved_data["padding"].toInt()};
    variable_list results(5);
    if (IsDifferentiatedAgain()) {
      const auto twin = [&](const variable_list& of) {
        return ConvolutionTwin(of[0], of[1].to(of[0].scalar_type()), options.stride,
                               options.padding);
      };
      std::ranges::copy(
          GradientsOfTwin({x, context->saved_data["weight"].toTensor()}, gradients[0], twin),
          results.begin());
      return results;
    }
    const at::Tensor dy = gradients[0].contiguous(x.suggest_memory_format());
    if (context->needs_input_grad(0)) {
      results[0] = PlannedConvolutionInputGradient(dy, x, weight, options);
    }
    if (!context->needs_input_grad(1)) return results;
    const at::Tensor d_weight = PlannedConvolutionWeightGradient(dy, x, weight, options);
    const at::Tensor to = context->saved_data["d_weight"].toTensor();
    if (to.defined()) {
      AddGradient(to, d_weight);
    } else {
      results[1] = d_weight.to(at::kFloat);
    }
    return results;
  }
};

}  // namespace

at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                       int64_t padding) {
  if (!IsOnGpu(x) || !Is16Bit(x) || weight.scalar_type() != at::kFloat) {
    return ConvolutionTwin(x, weight, stride, padding);
  }
  // By 1x1 it is a matrix product, whose plans are the better ones.
  const bool is_pointwise = GroupsOf(x, weight) == 1 && weight.size(2) == 1 &&
                            weight.size(3) == 1 && stride == 1 && padding == 0 &&
                            x.is_contiguous(at::MemoryFormat::ChannelsLast);
  if (is_pointwise && x.numel() > 0) return PointwiseConvolution(x, weight).convolved;
  return FusedConvolution::apply(x, weight, stride, padding, /*trains=*/at::GradMode::is_enabled());
}

at::Tensor ConvolutionTwin(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                           int64_t padding) {
  return at::conv2d(x, weight, /*bias=*/{}, stride, padding, /*dilation=*/1, GroupsOf(x, weight));
}

}  // namespace lockstep::ops
