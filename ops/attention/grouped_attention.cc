#include "ops/attention/grouped_attention.h"

#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>
#include <c10/core/GradMode.h>

#include "base/tensor/autocast.h"
#include "base/tensor/foretold_gpu.h"
#include "ops/common/launch_arguments.h"

namespace lockstep::ops {
namespace {

at::Tensor Rounded(const at::Tensor& x, const AutocastState& autocast) {
  const bool rounds = autocast.enabled && x.is_floating_point() && x.scalar_type() != at::kDouble;
  return rounds ? x.to(autocast.dtype) : x;
}

// Returns whether several heads of queries share one head of keys and values.
bool AreShared(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  constexpr int64_t kRank = 4;
  return query.dim() == kRank && key.dim() == kRank && value.dim() == kRank && key.size(1) > 0 &&
         key.size(1) == value.size(1) && key.size(1) < query.size(1) &&
         query.size(1) % key.size(1) == 0;
}

// Returns whether the kernel that LibTorch chooses can share heads of keys and values.
bool CanShareHeads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                   const std::optional<at::Tensor>& mask, const GroupedAttentionOptions& options) {
  if (!IsOnGpu(query) || !Is16Bit(query) || query.numel() == 0) return false;
  // LibTorch cannot choose a kernel for the device META, with which Lockstep simulates a GPU. Flash attention needs an
  // Ampere GPU.
  constexpr int kAmpere = 8;
  if (query.is_meta()) return TraitsOf(query.device()).major >= kAmpere;
  // The choice must not depend on the grad mode: with activation checkpointing, forward runs first without and then with
  // gradients, and both must draw the same dropout.
  const at::AutoGradMode with_history(true);
  const auto backend = static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(query.detach().requires_grad_(), key.detach(), value.detach(), mask,
                            options.dropout, options.causal, options.scale, /*enable_gqa=*/true));
  return backend == at::SDPBackend::cudnn_attention || backend == at::SDPBackend::flash_attention;
}

// Returns x, [count, shared, tokens, size], with each of its heads repeated, so that there are `heads`.
at::Tensor WithHeads(const at::Tensor& x, int64_t heads) {
  return x.unsqueeze(2)
      .expand({-1, -1, heads / x.size(1), -1, -1})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

}  // namespace

at::Tensor GroupedAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const GroupedAttentionOptions& options) {
  const AutocastState autocast = AutocastState::Now(query.device().type());
  const at::Tensor q = Rounded(query, autocast);
  at::Tensor k = Rounded(key, autocast), v = Rounded(value, autocast);
  TORCH_CHECK(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(),
              "attention of queries, keys and values of ", q.scalar_type(), ", ", k.scalar_type(),
              " and ", v.scalar_type());
  std::optional<at::Tensor> mask;
  if (options.mask.defined()) {
    mask = Rounded(options.mask, autocast);
    if (IsOnGpu(q) && mask->dim() > 0 && mask->stride(-1) != 1) mask = mask->contiguous();
  }
  bool shares = AreShared(q, k, v);
  if (shares && !CanShareHeads(q, k, v, mask, options)) {
    k = WithHeads(k, q.size(1));
    v = WithHeads(v, q.size(1));
    shares = false;
  }
  return at::scaled_dot_product_attention(q, k, v, mask, options.dropout, options.causal,
                                          options.scale, shares);
}

}  // namespace lockstep::ops
