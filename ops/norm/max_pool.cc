#include "ops/norm/max_pool.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "ops/common/launch_arguments.h"
#include "ops/norm/max_pool_kernel.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

struct Window {
  int64_t size;
  int64_t stride;
  int64_t padding;

  int64_t Pooled(int64_t length) const { return (length + 2 * padding - size) / stride + 1; }
};

MaxPoolShape ShapeOf(const at::Tensor& x, const Window& window) {
  return {.count = x.size(0),
          .channels = static_cast<int>(x.size(1)),
          .height = static_cast<int>(x.size(2)),
          .width = static_cast<int>(x.size(3)),
          .pooled_height = static_cast<int>(window.Pooled(x.size(2))),
          .pooled_width = static_cast<int>(window.Pooled(x.size(3))),
          .window = static_cast<int>(window.size),
          .stride = static_cast<int>(window.stride),
          .padding = static_cast<int>(window.padding)};
}

bool IsFused(const at::Tensor& x, const Window& window) {
  const auto fits = [&](int64_t length) { return length + 2 * window.padding >= window.size; };
  return IsOnGpu(x) && IsFloatType(x.scalar_type()) && x.dim() == 4 && x.numel() > 0 &&
         x.is_contiguous(kLast) && x.size(1) % ChannelsOfPack(TypeOf(x)) == 0 &&
         x.numel() / x.size(0) <= std::numeric_limits<int>::max() &&
         (window.size == 2 || window.size == 3) && window.stride > 0 && window.padding >= 0 &&
         2 * window.padding <= window.size && fits(x.size(2)) && fits(x.size(3));
}

// Returns whether the kernel of backward can add the gradient `images` without a copy to other strides.
bool IsAddable(const at::Tensor& images) {
  const int64_t pixel = images.stride(3);
  return images.stride(1) == 1 && images.stride(2) == images.size(3) * pixel &&
         images.stride(0) == images.size(2) * images.stride(2) &&
         pixel % ChannelsOfPack(TypeOf(images)) == 0 && IsAligned(images);
}

// Computes the members of PoolFork: {pooled, x}.
class FusedMaxPool : public torch::autograd::Function<FusedMaxPool> {
 public:
  static variable_list forward(AutogradContext* context, const Variable& x, const Window& window) {
    const c10::DeviceGuard guard(x.device());
    const MaxPoolShape shape = ShapeOf(x, window);
    const at::Tensor y = at::empty({x.size(0), x.size(1), shape.pooled_height, shape.pooled_width},
                                   x.options(), kLast);
    const at::Tensor positions = at::empty_like(y, x.options().dtype(at::kByte));
    Launch(x, [&](cudaStream_t stream) {
      LaunchMaxPool(x.const_data_ptr(), y.mutable_data_ptr(), positions.mutable_data_ptr<uint8_t>(),
                    TypeOf(x), shape, stream);
    });
    context->save_for_backward({positions});
    context->saved_data["sizes"] = x.sizes();
    context->saved_data["window"] =
        std::vector<int64_t>{window.size, window.stride, window.padding};
    context->set_materialize_grads(false);
    return {y, x};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined()) return {gradients[1], {}};
    const at::Tensor positions = context->get_saved_variables()[0];
    at::Tensor passed = gradients[1];
    if (passed.defined() && !IsAddable(passed)) passed = Aligned(passed.contiguous(kLast));
    const at::Tensor dy = Aligned(gradients[0].contiguous(kLast));
    const c10::DeviceGuard guard(dy.device());
    const std::vector<int64_t> window = context->saved_data["window"].toIntVector();
    const at::Tensor dx =
        at::empty(context->saved_data["sizes"].toIntVector(), dy.options(), kLast);
    Launch(dy, [&](cudaStream_t stream) {
      AddedGradient added;
      if (passed.defined()) added = {passed.const_data_ptr(), passed.stride(3)};
      LaunchMaxPoolBackward(dy.const_data_ptr(), positions.const_data_ptr<uint8_t>(), added,
                            dx.mutable_data_ptr(), TypeOf(dy),
                            ShapeOf(dx, {window[0], window[1], window[2]}), stream);
    });
    return {dx, {}};
  }
};

}  // namespace

at::Tensor MaxPool(const at::Tensor& x, int64_t window, int64_t stride, int64_t padding) {
  return ForkedMaxPool(x, window, stride, padding).pooled;
}

PoolFork ForkedMaxPool(const at::Tensor& x, int64_t window, int64_t stride, int64_t padding) {
  const Window all{window, stride, padding};
  if (!IsFused(x, all)) return {MaxPoolTwin(x, window, stride, padding), x};
  const variable_list results = FusedMaxPool::apply(Aligned(x), all);
  return {results[0], results[1]};
}

at::Tensor MaxPoolTwin(const at::Tensor& x, int64_t window, int64_t stride, int64_t padding) {
  return at::max_pool2d(x, window, stride, padding);
}

}  // namespace lockstep::ops
