// Fuse(): puts ops's operations where an exported graph has the chains of LibTorch's that they stand for.
//
// The table in fuse.cc names the operation that each pattern is looked for at. The patterns are
//
//   leave_out_pad.h             pads of nothing
//   fuse_fork.h                 1x1 convolutions whose input others read, too
//   fuse_squeeze_excite.h       products of images and a gate that their mean gives
//   fuse_batch_norm.h           norms of batches with the addition and the activation that follow
//   fuse_scaled_sum.h           residual sums with a layer scale
//   fuse_embedding.h            embeddings and their sums
//   fuse_layer_norm.h           norms of rows with the addition before them
//   fuse_rms_norm.h             RMS norms of rows with the addition before them
//   fuse_attention.h            attention of queries, keys and values that one linear layer computes
//   fuse_multihead_attention.h  torch.nn.MultiheadAttention of a sequence with itself
//   fuse_max_pool.h             max-pooling
//   fuse_windows.h              Swin's windows of images
//   fuse_linear.h               linear layers with the activation that follows
//   fuse_pointwise.h            of what is left, operations on elements at the same place
//
// A chain is fused if nobody else uses what lies between (rewriter.h). A fused operation gives what the chain gives,
// within rounding; where it has no kernel for what it gets, it calls LibTorch's operations itself.
#pragma once

#include <cstdint>

#include "models/imported/fuse_batch_norm.h"
#include "models/imported/program.h"

namespace lockstep::exported {

// `shared` must exist as long as the program runs. With ranks, throws Error (kUsage) if a norm of batches cannot share
// its statistics. Returns how many norms of batches there are.
int64_t Fuse(Program& program, const SharedStatistics& shared);

}  // namespace lockstep::exported
