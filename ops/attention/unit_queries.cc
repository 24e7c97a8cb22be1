#include "ops/attention/unit_queries.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "ops/attention/unit_queries_kernel.h"
#include "ops/common/launch_arguments.h"
#include "ops/common/second_derivative.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

int64_t PacksOfHead(const at::Tensor& qkv, int64_t heads) {
  return qkv.size(2) / (3 * heads * kUnitPackValues);
}

UnitQueriesShape ShapeOf(const at::Tensor& qkv, int64_t heads, double least) {
  return {.tokens = qkv.size(0) * qkv.size(1),
          .heads = static_cast<unsigned>(heads),
          .packs = static_cast<unsigned>(PacksOfHead(qkv, heads)),
          .least = static_cast<float>(least)};
}

class FusedUnitQueries : public torch::autograd::Function<FusedUnitQueries> {
 public:
  static Variable forward(AutogradContext* context, const Variable& qkv, const Variable& scale,
                          int64_t heads, double least) {
    const at::Tensor out = at::empty_like(qkv);
    Launch(qkv, [&](cudaStream_t stream) {
      LaunchUnitQueries({.qkv = qkv.const_data_ptr(),
                         .scale = scale.const_data_ptr<float>(),
                         .out = out.mutable_data_ptr()},
                        TypeOf(qkv), ShapeOf(qkv, heads, least), stream);
    });
    context->save_for_backward({qkv, scale});
    context->saved_data["heads"] = heads;
    context->saved_data["least"] = least;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const at::Tensor& scale = saved[1];
    const int64_t heads = context->saved_data["heads"].toInt();
    const double least = context->saved_data["least"].toDouble();
    const c10::DeviceGuard guard(qkv.device());
    variable_list results(4);
    if (IsDifferentiatedAgain()) {
      const auto twin = [&](const variable_list& of) {
        return UnitQueriesTwin(of[0], heads, of[1], least);
      };
      std::ranges::copy(GradientsOfTwin({qkv, scale}, gradients[0], twin), results.begin());
      return results;
    }
    const at::Tensor d_out = Aligned(gradients[0].contiguous());
    const at::Tensor d_qkv = at::empty_like(qkv);
    const UnitQueriesShape shape = ShapeOf(qkv, heads, least);
    at::Tensor d_scales;
    if (context->needs_input_grad(1)) d_scales = at::empty({shape.tokens, heads}, scale.options());
    Launch(qkv, [&](cudaStream_t stream) {
      LaunchUnitQueriesBackward(
          {.qkv = qkv.const_data_ptr(),
           .scale = scale.const_data_ptr<float>(),
           .d_out = d_out.const_data_ptr(),
           .d_qkv = d_qkv.mutable_data_ptr(),
           .d_scales = d_scales.defined() ? d_scales.mutable_data_ptr<float>() : nullptr},
          TypeOf(qkv), shape, stream);
    });
    results[0] = d_qkv;
    if (d_scales.defined()) results[1] = d_scales.sum(0);
    return results;
  }
};

}  // namespace

at::Tensor UnitQueries(const at::Tensor& qkv, int64_t heads, const at::Tensor& scale,
                       double least) {
  if (!HasUnitQueriesKernels(qkv, heads, scale)) return UnitQueriesTwin(qkv, heads, scale, least);
  const c10::DeviceGuard guard(qkv.device());
  return FusedUnitQueries::apply(Aligned(qkv.contiguous()), scale.contiguous(), heads, least);
}

at::Tensor UnitQueriesTwin(const at::Tensor& qkv, int64_t heads, const at::Tensor& scale,
                           double least) {
  // Autocast is excluded, because autocast would round the factors to 16 bits.
  const c10::impl::ExcludeDispatchKeyGuard exact(c10::autocast_dispatch_keyset);
  const std::vector<at::Tensor> parts =
      qkv.to(Is16Bit(qkv) ? at::kFloat : qkv.scalar_type()).unflatten(2, {3, heads, -1}).unbind(2);
  const auto unit = [&](const at::Tensor& x) {
    return x / at::linalg_vector_norm(x, 2, {-1}, /*keepdim=*/true).clamp_min(least);
  };
  return at::stack({unit(parts[0]) * scale.unsqueeze(1), unit(parts[1]), parts[2]}, 2)
      .flatten(2)
      .to(qkv.scalar_type())
      .contiguous();
}

bool HasUnitQueriesKernels(const at::Tensor& qkv, int64_t heads, const at::Tensor& scale) {
  if (!IsOnGpu(qkv) || !Is16Bit(qkv) || qkv.dim() != 3 || qkv.numel() == 0 ||
      qkv.numel() / kUnitPackValues > kMostUnitQueriesPacks || !IsFloatVector(scale, heads, qkv)) {
    return false;
  }
  const int64_t packs = PacksOfHead(qkv, heads);
  return qkv.size(2) == 3 * heads * packs * kUnitPackValues && packs <= kMostUnitPacks &&
         (packs & (packs - 1)) == 0;
}

}  // namespace lockstep::ops
