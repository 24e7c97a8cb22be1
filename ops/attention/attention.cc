#include "ops/attention/attention.h"

#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "ops/attention/attention_kernel.h"
#include "ops/attention/packed_attention.h"
#include "ops/common/launch_arguments.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// The size of a head must be a multiple of this number for flash attention's loads and for cuDNN. ATen pads other
// sizes.
constexpr int64_t kSizeMultiple = 8;

AttentionShape ShapeOf(const at::Tensor& qkv, int64_t heads) {
  return {.count = qkv.size(0),
          .tokens = qkv.size(1),
          .heads = heads,
          .size = qkv.size(2) / (3 * heads)};
}

// Returns queries, keys and values as views [count, heads, tokens, size].
std::vector<at::Tensor> Split(const at::Tensor& qkv, const AttentionShape& shape) {
  return qkv.view({shape.count, shape.tokens, 3, shape.heads, shape.size})
      .permute({2, 0, 3, 1, 4})
      .unbind(0);
}

// Returns x, contiguous [count, tokens, width], as a view [count, heads, tokens, size].
at::Tensor HeadsOf(const at::Tensor& x, const AttentionShape& shape) {
  return x.view({shape.count, shape.tokens, shape.heads, shape.size}).transpose(1, 2);
}

// Packs the three gradients, each [count, heads, tokens, size], into one tensor [count, tokens, 3 * width].
at::Tensor Pack(const std::array<at::Tensor, 3>& parts, const AttentionShape& shape) {
  const at::Tensor out =
      at::empty({shape.count, shape.tokens, 3 * shape.heads * shape.size}, parts[0].options());
  std::array<HeadsView, 3> views;
  std::array<at::Tensor, 3> kept;
  for (size_t p = 0; p < parts.size(); ++p) {
    kept[p] = parts[p].stride(3) == 1 ? parts[p] : parts[p].contiguous();
    views[p] = {kept[p].const_data_ptr(), kept[p].stride(0), kept[p].stride(1), kept[p].stride(2)};
  }
  Launch(out, [&](cudaStream_t stream) {
    LaunchPackHeads(views, out.mutable_data_ptr(), shape, stream);
  });
  return out;
}

std::optional<at::Tensor> Given(const at::Tensor& mask) {
  return mask.defined() ? std::optional(mask) : std::nullopt;
}

// Returns the numbers that the mask adds to the scores, in the scores' type `type`, or an undefined tensor if there is
// no mask. As in ATen, the number that hides a token is finite, so that the result is not NaN for a token that sees no
// token.
at::Tensor AsNumbers(const at::Tensor& mask, at::ScalarType type) {
  constexpr double kHidden = -65504;
  if (!mask.defined() || mask.scalar_type() != at::kBool) {
    return mask.defined() ? mask.to(type) : mask;
  }
  return at::zeros(mask.sizes(), mask.options().dtype(type)).masked_fill_(~mask, kHidden);
}

// Computes attention and its gradient with the functions that ATen calls for
// _scaled_dot_product_{cudnn,flash}_attention in derivatives.yaml.
class FusedAttention : public torch::autograd::Function<FusedAttention> {
 public:
  // Computes attention. `with_gradient` says whether backward may follow. forward() cannot find this out itself,
  // because grad mode is always off in the forward() of a Function. `mask` is the result of AsNumbers(); only cuDNN's
  // attention supports a mask.
  static Variable forward(AutogradContext* context, const Variable& qkv,
                          const std::optional<at::Tensor>& mask, int64_t heads, double dropout,
                          bool causal, bool cudnn, bool with_gradient) {
    const AttentionShape shape = ShapeOf(qkv, heads);
    const std::vector<at::Tensor> parts = Split(qkv, shape);
    const auto result = cudnn ? at::_scaled_dot_product_cudnn_attention(
                                    parts[0], parts[1], parts[2], /*attn_bias=*/mask,
                                    /*compute_log_sumexp=*/with_gradient, dropout, causal)
                              : at::_scaled_dot_product_flash_attention(parts[0], parts[1],
                                                                        parts[2], dropout, causal);
    const auto& [out, log_sums, cum_q, cum_k, max_q, max_k, seed, offset, debug_mask] = result;
    // Both backends return an output whose dimensions have the same order in memory as those of the queries, without
    // gaps, so contiguous() copies nothing. The result is not a view for autograd, because a view that a Function
    // returns could not be changed in place.
    const at::Tensor mixed = at::_unsafe_view(
        out.transpose(1, 2).contiguous(), {shape.count, shape.tokens, shape.heads * shape.size});
    if (with_gradient) {
      context->save_for_backward(
          {qkv, mixed, log_sums, cum_q, cum_k, seed, offset, mask.value_or(at::Tensor())});
      context->saved_data["max_q"] = max_q.expect_int();
      context->saved_data["max_k"] = max_k.expect_int();
      context->saved_data["heads"] = heads;
      context->saved_data["dropout"] = dropout;
      context->saved_data["causal"] = causal;
      context->saved_data["cudnn"] = cudnn;
    }
    return mixed;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const c10::DeviceGuard guard(qkv.device());
    const AttentionShape shape = ShapeOf(qkv, context->saved_data["heads"].toInt());
    const std::vector<at::Tensor> parts = Split(qkv, shape);
    const at::Tensor out = HeadsOf(saved[1], shape);
    // d_out must always have the same strides, because ATen's cache of cuDNN graphs does not distinguish between
    // strides of d_out.
    const at::Tensor d_out = HeadsOf(gradients[0].contiguous(), shape);
    const int64_t max_q = context->saved_data["max_q"].toInt();
    const int64_t max_k = context->saved_data["max_k"].toInt();
    const double dropout = context->saved_data["dropout"].toDouble();
    const bool causal = context->saved_data["causal"].toBool();
    const auto [dq, dk, dv] =
        context->saved_data["cudnn"].toBool()
            ? at::_scaled_dot_product_cudnn_attention_backward(
                  d_out, parts[0], parts[1], parts[2], out, /*logsumexp=*/saved[2],
                  /*philox_seed=*/saved[5], /*philox_offset=*/saved[6], /*attn_bias=*/saved[7],
                  /*cum_seq_q=*/saved[3], /*cum_seq_k=*/saved[4], max_q, max_k, dropout, causal)
            : at::_scaled_dot_product_flash_attention_backward(
                  d_out, parts[0], parts[1], parts[2], out, /*logsumexp=*/saved[2],
                  /*cum_seq_q=*/saved[3], /*cum_seq_k=*/saved[4], max_q, max_k, dropout, causal,
                  /*philox_seed=*/saved[5], /*philox_offset=*/saved[6]);
    return {Pack({dq, dk, dv}, shape), {}, {}, {}, {}, {}, {}};
  }
};

// Computes attention with direct calls of cuDNN, because ATen would copy the gradients. This class supports no dropout
// and no mask.
class CudnnAttention : public torch::autograd::Function<CudnnAttention> {
 public:
  // Computes attention. `with_gradient` has the same meaning as in FusedAttention.
  static Variable forward(AutogradContext* context, const Variable& qkv,
                          const PackedAttention& attention, bool with_gradient) {
    const AttentionShape& shape = attention.shape;
    at::Tensor log_sums;
    if (with_gradient) {
      log_sums =
          at::empty({shape.count, shape.heads, shape.tokens}, qkv.options().dtype(at::kFloat));
    }
    const at::Tensor out = RunPackedAttention(qkv, log_sums, attention);
    // The result is not a view for autograd, because a view that a Function returns could not be changed in place.
    const at::Tensor mixed =
        at::_unsafe_view(out, {shape.count, shape.tokens, shape.heads * shape.size});
    if (with_gradient) {
      context->save_for_backward({qkv, mixed, log_sums});
      context->saved_data["heads"] = shape.heads;
      context->saved_data["causal"] = attention.causal;
      context->saved_data["deterministic"] = attention.deterministic;
    }
    return mixed;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const c10::DeviceGuard guard(qkv.device());
    const PackedAttention attention{.shape = ShapeOf(qkv, context->saved_data["heads"].toInt()),
                                    .causal = context->saved_data["causal"].toBool(),
                                    .deterministic = context->saved_data["deterministic"].toBool()};
    return {RunPackedAttentionBackward(qkv, saved[1], Aligned(gradients[0].contiguous()), saved[2],
                                       attention),
            {},
            {}};
  }
};

// Returns the backend that ATen would choose if qkv required a gradient. ATen could otherwise choose a backend that
// cannot compute gradients for this size. The backend must not depend on the grad mode: with activation checkpointing,
// forward runs first without and then with gradients, and both runs must draw the same dropout. `mask` is the result of
// AsNumbers().
at::SDPBackend BackendFor(const at::Tensor& qkv, int64_t heads, const AttentionOptions& options,
                          const at::Tensor& mask) {
  // LibTorch cannot choose a backend for the device "meta", with which Lockstep simulates a GPU. For this device
  // BackendFor() returns the backend that keeps the least memory for backward.
  if (qkv.is_meta()) {
    return options.dropout == 0 && TraitsOf(qkv.device()).major >= 9
               ? at::SDPBackend::cudnn_attention
               : at::SDPBackend::flash_attention;
  }
  const at::AutoGradMode with_history(true);
  const std::vector<at::Tensor> parts = Split(qkv.detach().requires_grad_(), ShapeOf(qkv, heads));
  return static_cast<at::SDPBackend>(at::_fused_sdp_choice(
      parts[0], parts[1], parts[2], Given(mask), options.dropout, options.causal));
}

}  // namespace

at::Tensor SelfAttention(const at::Tensor& qkv, int64_t heads, const AttentionOptions& options) {
  const auto& [dropout, causal, mask] = options;
  // On the device "meta", with which Lockstep simulates a GPU (base/tensor/foretold_gpu.h), attention with a mask runs
  // SelfAttentionTwin(), whose operations the simulation supports.
  const bool is_twins = mask.defined() && (mask.requires_grad() || qkv.is_meta());
  if (!IsOnGpu(qkv) || !Is16Bit(qkv) || qkv.numel() == 0 || is_twins ||
      qkv.size(2) % (3 * heads * kSizeMultiple) != 0) {
    return SelfAttentionTwin(qkv, heads, options);
  }
  const c10::DeviceGuard guard(qkv.device());
  const at::Tensor whole = Aligned(qkv.contiguous());
  const at::Tensor added = AsNumbers(mask, whole.scalar_type());
  const auto backend = BackendFor(whole, heads, options, added);
  const bool cudnn = backend == at::SDPBackend::cudnn_attention;
  if (!cudnn && (mask.defined() || backend != at::SDPBackend::flash_attention)) {
    return SelfAttentionTwin(whole, heads, options);
  }
  const bool with_gradient = at::GradMode::is_enabled() && whole.requires_grad();
  const PackedAttention packed{.shape = ShapeOf(whole, heads),
                               .causal = causal,
                               .deterministic = at::globalContext().deterministicAlgorithms()};
  if (cudnn && dropout == 0 && !mask.defined() && HasPackedAttention(whole, packed)) {
    return CudnnAttention::apply(whole, packed, with_gradient);
  }
  return FusedAttention::apply(whole, Given(added), heads, dropout, causal, cudnn, with_gradient);
}

at::Tensor SelfAttentionTwin(const at::Tensor& qkv, int64_t heads,
                             const AttentionOptions& options) {
  const std::vector<at::Tensor> parts = Split(qkv.contiguous(), ShapeOf(qkv, heads));
  return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], Given(options.mask),
                                          options.dropout, options.causal)
      .transpose(1, 2)
      .reshape({qkv.size(0), qkv.size(1), qkv.size(2) / 3});
}

}  // namespace lockstep::ops
