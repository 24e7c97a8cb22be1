#include "ops/convolution/convolution.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "ops/common/launch_arguments.h"
#include "ops/common/rounded_weight.h"
#include "ops/common/second_derivative.h"
#include "ops/convolution/convolution_planner.h"
#include "ops/convolution/pointwise_convolution.h"
#include "ops/product/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Converts the weight of a grouped convolution, [outputs, inputs of a group, height, width], to the weight of one
// convolution of all channels, [outputs, inputs, height, width], channels last. The converted weight is zero where
// input and output belong to different groups.
at::Tensor JoinedWeight(const at::Tensor& weight, int64_t groups) {
  if (groups == 1) return weight;
  const int64_t outputs = weight.size(0) / groups;
  const int64_t inputs = weight.size(1);
  const int64_t height = weight.size(2);
  const int64_t width = weight.size(3);
  const at::Tensor joined =
      at::zeros({groups, outputs, height, width, groups, inputs}, weight.options());
  joined.diagonal(0, 0, 4).copy_(
      weight.reshape({groups, outputs, inputs, height, width}).permute({1, 3, 4, 2, 0}));
  return joined.view({groups * outputs, height, width, groups * inputs}).permute({0, 3, 1, 2});
}

// Returns the grouped convolution's weight that JoinedWeight() converted to `joined`, or the gradient of that weight if
// `joined` is the gradient of the joined weight. Drops the values where input and output belong to different groups.
at::Tensor WeightOfGroups(const at::Tensor& joined, int64_t groups) {
  if (groups == 1) return joined;
  const int64_t outputs = joined.size(0) / groups;
  const int64_t inputs = joined.size(1) / groups;
  const int64_t height = joined.size(2);
  const int64_t width = joined.size(3);
  return joined.reshape({groups, outputs, groups, inputs, height, width})
      .diagonal(0, 0, 2)
      .permute({4, 0, 1, 2, 3})
      .reshape({groups * outputs, inputs, height, width});
}

class FusedConvolution : public torch::autograd::Function<FusedConvolution> {
 public:
  // Computes the convolution. `trains` says whether a backward may follow.
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          int64_t stride, int64_t padding, bool trains) {
    const int64_t groups = GroupsOf(x, weight);
    const at::Tensor rounded = JoinedWeight(Rounded(weight, x.scalar_type()), groups);
    // The gradient of x needs the weight, and the gradient of the weight needs x.
    context->save_for_backward({x, rounded});
    context->saved_data["weight"] = weight;
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["groups"] = groups;
    context->saved_data["d_weight"] = GradientToAddTo(weight);
    return PlannedConvolution(
        x, rounded, {.stride = stride, .padding = padding, .searches = trains, .groups = groups});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const c10::DeviceGuard guard(x.device());
    const ConvolutionOptions options{.stride = context->saved_data["stride"].toInt(),
                                     .padding = context->saved_data["padding"].toInt(),
                                     .groups = context->saved_data["groups"].toInt()};
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
    const at::Tensor d_weight =
        WeightOfGroups(PlannedConvolutionWeightGradient(dy, x, weight, options), options.groups);
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
  if (GroupsOf(x, weight) > 1 && !JoinsGroups(x, weight)) {
    return ConvolutionTwin(x, weight.to(x.scalar_type()), stride, padding);
  }
  // A 1x1 convolution is a matrix product, for which cuBLASLt's plans are faster than cuDNN's.
  const bool is_pointwise = GroupsOf(x, weight) == 1 && weight.size(2) == 1 &&
                            weight.size(3) == 1 && stride == 1 && padding == 0 &&
                            x.is_contiguous(at::MemoryFormat::ChannelsLast);
  if (is_pointwise && x.numel() > 0) return PointwiseConvolution(x, weight).convolved;
  return FusedConvolution::apply(x, weight, stride, padding, /*trains=*/at::GradMode::is_enabled());
}

int64_t GroupsOf(const at::Tensor& x, const at::Tensor& weight) {
  const bool is_image = x.dim() == 4 && weight.dim() == 4 && weight.size(1) > 0;
  return is_image ? std::max<int64_t>(1, x.size(1) / weight.size(1)) : 1;
}

bool JoinsGroups(const at::Tensor& x, const at::Tensor& weight) {
  // The limits for the number of input channels of all groups together, and for that of one group. Beyond these limits,
  // one convolution of all channels would multiply too many zeros.
  constexpr int64_t kMostInputs = 1024;
  constexpr int64_t kMostOfGroup = 128;
  constexpr int64_t kPack = 8;
  const int64_t groups = GroupsOf(x, weight);
  if (groups == 1 || weight.size(1) * groups != x.size(1) || weight.size(0) % groups != 0) {
    return false;
  }
  return !std::has_single_bit(static_cast<uint64_t>(weight.size(1))) &&
         weight.size(1) < kMostOfGroup && x.size(1) <= kMostInputs && x.size(1) % kPack == 0 &&
         weight.size(0) % kPack == 0;
}

at::Tensor ConvolutionTwin(const at::Tensor& x, const at::Tensor& weight, int64_t stride,
                           int64_t padding) {
  return at::conv2d(x, weight, /*bias=*/{}, stride, padding, /*dilation=*/1, GroupsOf(x, weight));
}

}  // namespace lockstep::ops
