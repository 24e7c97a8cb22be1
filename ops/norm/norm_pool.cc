#include "ops/norm/norm_pool.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "ops/common/launch_arguments.h"
#include "ops/norm/kept_ranks.h"
#include "ops/norm/max_pool.h"
#include "ops/norm/norm_pool_kernel.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

NormPoolShape ShapeOf(const at::Tensor& x) {
  const auto height = static_cast<int>(x.size(2));
  const auto width = static_cast<int>(x.size(3));
  return {.count = x.size(0),
          .channels = static_cast<int>(x.size(1)),
          .height = height,
          .width = width,
          .pooled_height = height / 2 + height % 2,
          .pooled_width = width / 2 + width % 2,
          .multiprocessors = TraitsOf(x.device()).multiprocessors};
}

bool IsFused(const at::Tensor& x, const ChannelNorm& norm) {
  return HasBatchNormKernels(x, norm) && x.dim() == 4 &&
         x.numel() / x.size(0) <= std::numeric_limits<int>::max();
}

class FusedNormPool : public torch::autograd::Function<FusedNormPool> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          const Variable& bias, const ChannelNorm& norm) {
    const c10::DeviceGuard guard(x.device());
    const NormPoolShape shape = ShapeOf(x);
    const at::Tensor statistics = BatchStatistics(x, norm);
    const at::Tensor y = at::empty({x.size(0), x.size(1), shape.pooled_height, shape.pooled_width},
                                   x.options(), kLast);
    const at::Tensor codes = at::empty_like(y, x.options().dtype(at::kByte));
    Launch(x, [&](cudaStream_t stream) {
      LaunchNormPool({.x = x.const_data_ptr(),
                      .weight = weight.const_data_ptr<float>(),
                      .bias = bias.const_data_ptr<float>(),
                      .statistics = statistics.const_data_ptr<float>(),
                      .y = y.mutable_data_ptr(),
                      .codes = codes.mutable_data_ptr<uint8_t>()},
                     TypeOf(x), shape, stream);
    });
    context->save_for_backward({x, weight, statistics, codes});
    KeepRanks(context, norm.ranks);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const c10::DeviceGuard guard(x.device());
    const NormPoolShape shape = ShapeOf(x);
    const at::Tensor dy = Aligned(gradients[0].contiguous(kLast));
    const at::TensorOptions floats = x.options().dtype(at::kFloat);
    const at::Tensor partials =
        at::empty({NormPoolPartialRows(TypeOf(x), shape), 2, shape.channels}, floats);
    const at::Tensor own = at::empty({2, shape.channels}, floats);
    const at::Tensor dx = at::empty_like(x);
    NormPoolBackward tensors{.x = x.const_data_ptr(),
                             .dy = dy.const_data_ptr(),
                             .codes = saved[3].const_data_ptr<uint8_t>(),
                             .weight = saved[1].const_data_ptr<float>(),
                             .statistics = saved[2].const_data_ptr<float>(),
                             .partials = partials.mutable_data_ptr<float>(),
                             .d_weights = own.mutable_data_ptr<float>(),
                             .dx = dx.mutable_data_ptr()};
    Launch(x, [&](cudaStream_t stream) { LaunchNormPoolSums(tensors, TypeOf(x), shape, stream); });
    NormRanks* const ranks = RanksOf(context);
    at::Tensor all;
    if (ranks != nullptr) {
      all = own.clone();
      ranks->AddUp(all);
      tensors.d_weights = all.mutable_data_ptr<float>();
    }
    Launch(x,
           [&](cudaStream_t stream) { LaunchNormPoolBackward(tensors, TypeOf(x), shape, stream); });
    return {dx, own[0], own[1], {}};
  }
};

}  // namespace

at::Tensor NormPool(const at::Tensor& x, const ChannelNorm& norm) {
  if (!IsFused(x, norm)) return NormPoolTwin(Aligned(x), norm);
  return FusedNormPool::apply(Aligned(x), norm.weight, norm.bias, norm);
}

at::Tensor NormPoolTwin(const at::Tensor& x, const ChannelNorm& norm) {
  return MaxPoolTwin(BatchNormTwin(x, norm, Activation::kRelu), /*window=*/3, /*stride=*/2,
                     /*padding=*/1);
}

}  // namespace lockstep::ops
