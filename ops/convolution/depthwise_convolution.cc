#include "ops/convolution/depthwise_convolution.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "ops/common/launch_arguments.h"
#include "ops/common/second_derivative.h"
#include "ops/convolution/convolution_planner.h"
#include "ops/convolution/depthwise_convolution_kernel.h"
#include "ops/product/linear_parts.h"
#include "ops/product/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

DepthwiseShape ShapeOf(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                       int64_t padding) {
  const auto made = [&](int64_t dimension) {
    return static_cast<int>((x.size(dimension) + 2 * padding - weight.size(2)) / stride + 1);
  };
  return {.count = static_cast<int>(x.size(0)),
          .channels = static_cast<int>(x.size(1)),
          .height = static_cast<int>(x.size(2)),
          .width = static_cast<int>(x.size(3)),
          .out_height = made(2),
          .out_width = made(3),
          .size = static_cast<int>(weight.size(2)),
          .stride = static_cast<int>(stride),
          .padding = static_cast<int>(padding),
          .multiprocessors = TraitsOf(x.device()).multiprocessors};
}

// Returns the weight as a contiguous tensor [channels, size, size].
at::Tensor Windows(const at::Tensor& weight) {
  return weight.detach().reshape({weight.size(0), weight.size(2), weight.size(3)}).contiguous();
}

class FusedDepthwise : public torch::autograd::Function<FusedDepthwise> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          const std::optional<Variable>& bias, int64_t stride, int64_t padding) {
    // The event makes the convolution visible to profilers and to code that counts floating-point operations.
    RECORD_FUNCTION(kConvolutionEvent, ConvolutionEventInputs(x, weight, stride, padding));
    const DepthwiseShape shape = ShapeOf(x, weight, stride, padding);
    const at::Tensor windows = Windows(weight);
    const at::Tensor added = bias ? bias->contiguous() : at::Tensor();
    const at::Tensor y =
        at::empty({x.size(0), x.size(1), shape.out_height, shape.out_width}, x.options(), kLast);
    Launch(x, [&](cudaStream_t stream) {
      LaunchDepthwise(x.const_data_ptr(), windows.const_data_ptr<float>(),
                      added.defined() ? added.const_data_ptr<float>() : nullptr,
                      y.mutable_data_ptr(), TypeOf(x), shape, stream);
    });
    context->save_for_backward({x, weight});
    context->saved_data["bias"] = bias ? *bias : at::Tensor();
    if (bias) context->saved_data["d_bias"] = GradientToAddTo(*bias);
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["d_weight"] = GradientToAddTo(weight);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const int64_t stride = context->saved_data["stride"].toInt();
    const int64_t padding = context->saved_data["padding"].toInt();
    const at::Tensor bias = context->saved_data["bias"].toTensor();
    variable_list results(5);
    if (IsDifferentiatedAgain()) {
      const auto twin = [&](const variable_list& of) {
        const at::ScalarType type = of[0].scalar_type();
        return DepthwiseConvolutionTwin(of[0], of[1].to(type),
                                        of[2].defined() ? of[2].to(type) : of[2], stride, padding);
      };
      std::ranges::copy(GradientsOfTwin({x, weight, bias}, gradients[0], twin), results.begin());
      return results;
    }
    const at::Tensor dy = Aligned(gradients[0].contiguous(kLast));
    const auto inputs = [&]() -> std::vector<c10::IValue> { return {dy, x, weight}; };
    RECORD_FUNCTION(kConvolutionGradientEvent, inputs());
    const DepthwiseShape shape = ShapeOf(x, weight, stride, padding);
    if (context->needs_input_grad(0)) {
      const at::Tensor windows = Windows(weight);
      results[0] = at::empty(x.sizes(), x.options(), kLast);
      Launch(x, [&](cudaStream_t stream) {
        LaunchDepthwiseInputGradient(dy.const_data_ptr(), windows.const_data_ptr<float>(),
                                     results[0].mutable_data_ptr(), TypeOf(x), shape, stream);
      });
    }
    // Without a bias the Function has no input number 2.
    if (bias.defined() && context->needs_input_grad(2)) {
      results[2] =
          BiasGradient(context->saved_data["d_bias"].toTensor(), Rows(dy.permute({0, 2, 3, 1})));
    }
    if (!context->needs_input_grad(1)) return results;
    const GradientSums sums =
        NewGradientSums(context->saved_data["d_weight"].toTensor(), weight.numel(), x.options());
    const at::Tensor partials =
        at::empty({DepthwisePartials(shape)}, x.options().dtype(at::kFloat));
    Launch(x, [&](cudaStream_t stream) {
      LaunchDepthwiseWeightGradient(x.const_data_ptr(), dy.const_data_ptr(),
                                    partials.mutable_data_ptr<float>(), sums.to, TypeOf(x), shape,
                                    stream);
    });
    if (sums.result.defined()) results[1] = sums.result.view(weight.sizes());
    return results;
  }
};

}  // namespace

bool HasDepthwiseKernels(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                         int64_t padding) {
  if (!IsOnGpu(x) || !Is16Bit(x) || x.dim() != 4 || x.numel() == 0 || weight.dim() != 4 ||
      weight.scalar_type() != at::kFloat || weight.device() != x.device() ||
      !weight.is_contiguous()) {
    return false;
  }
  const int64_t size = weight.size(2);
  const bool is_depthwise = weight.size(0) == x.size(1) && weight.size(1) == 1 &&
                            x.size(1) % ChannelsOfPack(TypeOf(x)) == 0;
  return is_depthwise && (size == 3 || size == 5 || size == 7) && weight.size(3) == size &&
         (stride == 1 || stride == 2) && padding >= 0 && padding < size &&
         std::min(x.size(2), x.size(3)) + 2 * padding >= size &&
         x.numel() / x.size(0) <= std::numeric_limits<int>::max();
}

at::Tensor DepthwiseConvolution(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias, int64_t stride, int64_t padding) {
  const bool fits = HasDepthwiseKernels(x, weight, stride, padding) &&
                    (!bias.defined() || IsFloatVector(bias, x.size(1), x));
  if (!fits) return DepthwiseConvolutionTwin(x, weight, bias, stride, padding);
  return FusedDepthwise::apply(Aligned(x.contiguous(kLast)), weight,
                               bias.defined() ? std::optional(bias) : std::nullopt, stride,
                               padding);
}

at::Tensor DepthwiseConvolutionTwin(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias, int64_t stride, int64_t padding) {
  return at::conv2d(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, stride, padding,
                    /*dilation=*/1, /*groups=*/weight.size(0));
}

}  // namespace lockstep::ops
