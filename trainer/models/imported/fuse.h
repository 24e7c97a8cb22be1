// Fuse(): puts trainer/ops's operations where an exported graph has the chains of LibTorch's that they stand for.
//
//   batch_norm [-> relu, silu or hardswish]                   BatchNorm()
//   batch_norm -> add of another branch -> relu               BatchNorm()
//   two batch_norms -> add -> relu                            JoinBatchNorms()
//   batch_norm -> relu -> max_pool2d of 3, stride 2           NormPool()
//   layer_norm of the last dimension                          LayerNorm()
//
// A norm is fused if it uses the statistics of its batch, and if nobody else uses what lies between. Like torch.nn's it
// refuses a batch of one value of a channel. The rest of a chain moves to where its last operation stood, so a chain is
// left as it is if an operation between changes a tensor in place.
//
// With SharedStatistics BatchNorm() and its like run with the ranks that share them. A graph has been exported for at least
// one sample, so a rank without samples runs it with samples that its norms leave out.
//
// Under autocast a layer_norm of 16-bit values gives float32 values. If everybody who uses them rounds them to 16 bits
// again (linear, conv2d), LayerNorm() gives them so at once.
#pragma once

#include "trainer/models/imported/program.h"
#include "trainer/ops/norm/batch_norm.h"

namespace lockstep::exported {

// How the norms of a graph share the statistics of a batch that lies on several ranks.
struct SharedStatistics {
  ops::NormRanks* ranks = nullptr;  // null: each rank has its own
  // False while a rank without samples runs the graph: its norms then count nothing of what they get.
  bool has_samples = true;
};

// `shared` must exist as long as the program runs. With ranks, throws Error (kUsage) if a norm of batches cannot share its
// statistics. Returns how many norms of batches there are.
int64_t Fuse(Program& program, const SharedStatistics& shared);

}  // namespace lockstep::exported
