// Computes attention of separate queries, keys and values, where several heads of queries may share one head of keys and
// values (grouped-query attention).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace lockstep::ops {

struct GroupedAttentionOptions {
  // The probability with which dropout sets a weight of the softmax to 0; 0 unless the model is training.
  double dropout = 0;
  bool causal = false;  // whether a token does not see the tokens after it
  // Undefined if no mask is used, or a tensor that broadcasts to [count, heads, queries, keys]. A bool mask is true where
  // a query sees a key. The values of a mask of another type are added to the scores, and may require a gradient. A mask
  // cannot be used together with `causal`.
  at::Tensor mask{};
  std::optional<double> scale{};  // the scores' factor; nothing: 1 / sqrt(size)
};

// Returns softmax(scale q k^T + mask) v for each head, [count, heads, queries, value size]. `query` is [count, heads,
// queries, size], `key` [count, shared, keys, size], and `value` [count, shared, keys, value size], all of one type.
// `shared` divides `heads`: heads / shared successive heads of queries share one head of keys and values. Tensors of
// other sizes are passed on to at::scaled_dot_product_attention().
//
// Under autocast the inputs are rounded. LibTorch chooses the kernel. On a GPU, shared heads are repeated in memory only
// for kernels that cannot share them, and a mask whose last dimension is not contiguous is copied, because LibTorch would
// otherwise compute the scores in float32 and keep them. If `mask` requires a gradient, the kernel that writes this
// gradient without keeping the scores is memory-efficient attention.
at::Tensor GroupedAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const GroupedAttentionOptions& options);

}  // namespace lockstep::ops
