// Fuse(): replaces chains of LibTorch's operations in an exported graph by fused operations of ops.
//
// The table in fuse.cc names the operation at which each pattern is looked for. The patterns are
//
//   leave_out_idle.h            pads of size 0, and dropouts that drop nothing
//   shorten_cat.h               concatenations with empty constants, and with what others concatenate
//   fuse_fork.h                 1x1 convolutions whose input is also read by other operations
//   fuse_squeeze_excite.h       products of an image and a gate that is computed from the image's mean
//   fuse_batch_norm.h           BatchNorm with the addition and the activation that follow
//   fuse_scaled_sum.h           residual sums with a layer scale
//   fuse_embedding.h            embeddings and their sums
//   fuse_layer_norm.h           LayerNorm with the addition before it
//   fuse_rms_norm.h             RMSNorm with the addition before it
//   fuse_attention.h            attention of queries, keys and values that one linear layer computes
//   fuse_multihead_attention.h  torch.nn.MultiheadAttention as self-attention
//   fuse_grouped_attention.h    other attention, whose heads of queries may share heads of keys and values
//   fuse_max_pool.h             max-pooling
//   fuse_windows.h              the windows into which Swin transformers divide images
//   fuse_linear.h               linear layers with the activation that follows, or whose input others read, too
//   fuse_generated.h            element-wise operations, reductions and norms that the other patterns have not fused
//
// A chain is fused only if no node outside it uses its intermediate results (rewriter.h). A fused operation gives the
// same result as the chain, except for rounding. Where a fused operation has no kernel for its arguments, it calls
// LibTorch's operations itself.
#pragma once

#include <cstdint>

#include "models/imported/fuse_batch_norm.h"
#include "models/imported/program.h"

namespace lockstep::exported {

// Fuses all patterns of `program`, and returns the number of its BatchNorm operations in training mode. `shared` must
// exist as long as the program runs. If shared.ranks is set, throws Error (kUsage) if the statistics of a BatchNorm
// cannot be shared.
int64_t Fuse(Program& program, const SharedStatistics& shared);

}  // namespace lockstep::exported
