// BatchNorm with the operations that follow it (fuse.h):
//
//   batch_norm [-> relu, silu or hardswish]                   BatchNorm()
//   batch_norm -> add of another branch -> relu               BatchNorm()
//   two batch_norms -> add -> relu                            JoinBatchNorms()
//   batch_norm -> relu -> max_pool2d of 3, stride 2           NormPool()
//
// A norm is fused if it uses the statistics of its batch. Like torch.nn's BatchNorm, the fused norm refuses a batch
// with only one value for each channel.
//
// If SharedStatistics has ranks, the fused operations share the statistics among these ranks. An exported graph takes
// at least one sample, so a rank without samples runs the graph with dummy samples, which the norms leave out of the
// statistics.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"
#include "ops/norm/batch_norm.h"

namespace lockstep::exported {

// Says how the BatchNorm operations of a graph share the statistics of a batch that is distributed over several ranks.
struct SharedStatistics {
  ops::NormRanks* ranks = nullptr;  // null: each rank has its own statistics
  // False while a rank without samples runs the graph: the norms then leave the dummy samples out of the statistics.
  bool has_samples = true;
};

// Returns whether the node is a BatchNorm that uses the statistics of its batch.
bool IsBatchNorm(const Node& node);

// Fuses the batch_norm operation `node` and the operations that follow it. `shared` must exist as long as the program
// runs. If shared.ranks is set, throws Error (kUsage) if the statistics of the norm, a batch_norm or native_batch_norm,
// cannot be shared.
void FuseBatchNorm(Rewriter& rewriter, int64_t node, const SharedStatistics& shared);

}  // namespace lockstep::exported
