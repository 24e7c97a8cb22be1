#include "ops/pixels/pixel_mean.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

class ChannelsLastMean : public torch::autograd::Function<ChannelsLastMean> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x) {
    context->saved_data["sizes"] = x.sizes().vec();
    return PixelMeanTwin(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const std::vector<int64_t> sizes = context->saved_data["sizes"].toIntVector();
    const at::Tensor of_pixel = gradients[0] / (sizes[2] * sizes[3]);
    return {of_pixel.view({sizes[0], sizes[1], 1, 1})
                .expand(sizes)
                .contiguous(at::MemoryFormat::ChannelsLast)};
  }
};

}  // namespace

at::Tensor PixelMean(const at::Tensor& x) {
  if (!x.is_contiguous(at::MemoryFormat::ChannelsLast)) return PixelMeanTwin(x);
  return ChannelsLastMean::apply(x);
}

at::Tensor PixelMeanTwin(const at::Tensor& x) {
  return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
}

}  // namespace lockstep::ops
