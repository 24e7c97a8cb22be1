#include "ops/attention/window_attention.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "ops/attention/packed_attention.h"
#include "ops/attention/window_attention_kernel.h"
#include "ops/common/launch_arguments.h"
#include "ops/common/second_derivative.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

WindowAttentionShape ShapeOf(const at::Tensor& qkv, int64_t heads, const at::Tensor& mask) {
  return {.windows = qkv.size(0),
          .heads = heads,
          .kinds = mask.defined() ? mask.size(0) : 1,
          .tokens = static_cast<int>(qkv.size(1)),
          .multiprocessors = TraitsOf(qkv.device()).multiprocessors};
}

const float* FloatsOf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
}

class FusedWindowAttention : public torch::autograd::Function<FusedWindowAttention> {
 public:
  static Variable forward(AutogradContext* context, const Variable& qkv, const Variable& bias,
                          const std::optional<Variable>& mask, int64_t heads) {
    RECORD_FUNCTION(kPackedAttentionEvent,
                    std::vector<c10::IValue>({qkv, heads, /*causal=*/false}));
    const at::Tensor added = mask.value_or(at::Tensor());
    const WindowAttentionShape shape = ShapeOf(qkv, heads, added);
    const at::Tensor out = at::empty({qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.options());
    Launch(qkv, [&](cudaStream_t stream) {
      LaunchWindowAttention({.qkv = qkv.const_data_ptr(),
                             .bias = FloatsOf(bias),
                             .mask = FloatsOf(added),
                             .out = out.mutable_data_ptr()},
                            TypeOf(qkv), shape, stream);
    });
    context->save_for_backward({qkv, bias, added});
    context->saved_data["heads"] = heads;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const at::Tensor& bias = saved[1];
    const at::Tensor& mask = saved[2];
    const int64_t heads = context->saved_data["heads"].toInt();
    const c10::DeviceGuard guard(qkv.device());
    variable_list results(4);
    if (IsDifferentiatedAgain()) {
      const auto twin = [&](const variable_list& of) {
        return WindowAttentionTwin(of[0], heads, of[1], mask);
      };
      std::ranges::copy(GradientsOfTwin({qkv, bias}, gradients[0], twin), results.begin());
      return results;
    }
    const WindowAttentionShape shape = ShapeOf(qkv, heads, mask);
    const at::Tensor d_out = Aligned(gradients[0].contiguous());
    const at::Tensor d_qkv = at::empty_like(qkv);
    at::Tensor d_bias;
    at::Tensor partials;
    if (context->needs_input_grad(1)) {
      d_bias = at::empty_like(bias);
      partials = at::empty({WindowAttentionPartialRows(shape), bias.numel()}, bias.options());
    }
    const auto written = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
    };
    Launch(qkv, [&](cudaStream_t stream) {
      LaunchWindowAttentionBackward({.qkv = qkv.const_data_ptr(),
                                     .bias = FloatsOf(bias),
                                     .mask = FloatsOf(mask),
                                     .d_out = d_out.const_data_ptr(),
                                     .d_qkv = d_qkv.mutable_data_ptr(),
                                     .partials = written(partials),
                                     .d_bias = written(d_bias)},
                                    TypeOf(qkv), shape, stream);
    });
    results[0] = d_qkv;
    results[1] = d_bias;
    return results;
  }
};

}  // namespace

at::Tensor WindowAttention(const at::Tensor& qkv, int64_t heads, const at::Tensor& bias,
                           const at::Tensor& mask) {
  if (!HasWindowAttentionKernels(qkv, heads, bias, mask)) {
    return WindowAttentionTwin(qkv, heads, bias, mask);
  }
  const c10::DeviceGuard guard(qkv.device());
  const auto added = mask.defined() ? std::optional<Variable>(mask.contiguous()) : std::nullopt;
  return FusedWindowAttention::apply(Aligned(qkv.contiguous()), bias.contiguous(), added, heads);
}

at::Tensor WindowAttentionTwin(const at::Tensor& qkv, int64_t heads, const at::Tensor& bias,
                               const at::Tensor& mask) {
  // Autocast is excluded, because autocast would round the factors and the products to 16 bits.
  const c10::impl::ExcludeDispatchKeyGuard exact(c10::autocast_dispatch_keyset);
  const int64_t windows = qkv.size(0);
  const int64_t tokens = qkv.size(1);
  const int64_t size = qkv.size(2) / (3 * heads);
  const std::vector<at::Tensor> parts = qkv.to(Is16Bit(qkv) ? at::kFloat : qkv.scalar_type())
                                            .reshape({windows, tokens, 3, heads, size})
                                            .permute({2, 0, 3, 1, 4})
                                            .unbind(0);
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  at::Tensor scores = at::matmul(parts[0] * scale, parts[1].transpose(2, 3)) + bias;
  if (mask.defined()) {
    const at::Tensor by_kind =
        scores.view({windows / mask.size(0), mask.size(0), heads, tokens, tokens});
    scores = (by_kind + mask.unsqueeze(1)).view({windows, heads, tokens, tokens});
  }
  return at::matmul(scores.softmax(-1).to(parts[2].scalar_type()), parts[2])
      .transpose(1, 2)
      .reshape({windows, tokens, heads * size})
      .to(qkv.scalar_type());
}

bool HasWindowAttentionKernels(const at::Tensor& qkv, int64_t heads, const at::Tensor& bias,
                               const at::Tensor& mask) {
  if (!IsOnGpu(qkv) || !Is16Bit(qkv) || qkv.dim() != 3 || qkv.numel() == 0 ||
      TraitsOf(qkv.device()).major < kLeastWindowMajor) {
    return false;
  }
  const int64_t tokens = qkv.size(1);
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.device() == qkv.device() &&
           tensor.dim() == 3 && tensor.size(1) == tokens && tensor.size(2) == tokens;
  };
  const bool has_mask = mask.defined();
  return tokens <= kMaxWindowTokens && qkv.size(2) == 3 * heads * kWindowHeadSize && fits(bias) &&
         bias.size(0) == heads &&
         (!has_mask || (fits(mask) && !mask.requires_grad() && mask.size(0) > 0 &&
                        mask.size(0) <= kMaxWindowKinds && qkv.size(0) % mask.size(0) == 0));
}

}  // namespace lockstep::ops
