// Norms of batches with what follows them (fuse.h):
//
//   batch_norm [-> relu, silu or hardswish]                   BatchNorm()
//   batch_norm -> add of another branch -> relu               BatchNorm()
//   two batch_norms -> add -> relu                            JoinBatchNorms()
//   batch_norm -> relu -> max_pool2d of 3, stride 2           NormPool()
//
// A norm is fused if it uses the statistics of its batch. Like torch.nn's it refuses a batch of one value of a channel.
//
// With SharedStatistics BatchNorm() and its like run with the ranks that share them. A graph has been exported for at
// least one sample, so a rank without samples runs it with samples that its norms leave out.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"
#include "ops/norm/batch_norm.h"

namespace lockstep::exported {

// How the norms of a graph share the statistics of a batch that lies on several ranks.
struct SharedStatistics {
  ops::NormRanks* ranks = nullptr;  // null: each rank has its own
  // False while a rank without samples runs the graph: its norms then count nothing of what they get.
  bool has_samples = true;
};

// Whether it is a norm with the statistics of its batch.
bool IsBatchNorm(const Node& node);

// Fuses the batch_norm or native_batch_norm that is this node. `shared` must exist as long as the program runs. With
// ranks, throws Error (kUsage) if the norm cannot share its statistics.
void FuseBatchNorm(Rewriter& rewriter, int64_t node, const SharedStatistics& shared);

}  // namespace lockstep::exported
