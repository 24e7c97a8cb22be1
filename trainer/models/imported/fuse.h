// Fuse(): puts trainer/ops's operations where an exported graph has the chains of LibTorch's that they stand for.
//
// The table in fuse.cc names the operation that each pattern is looked for at. The patterns are
//
//   fuse_batch_norm.h   norms of batches with the addition and the activation that follow
//   fuse_layer_norm.h   norms of rows with the addition before them
//   fuse_max_pool.h     max-pooling
//   leave_out_pad.h     pads of nothing
//   fuse_attention.h    attention of queries, keys and values that one linear layer computes
//
// A chain is fused if nobody else uses what lies between (rewriter.h). A fused operation gives what the chain gives,
// within rounding; where it has no kernel for what it gets, it calls LibTorch's operations itself.
#pragma once

#include <cstdint>

#include "trainer/models/imported/fuse_batch_norm.h"
#include "trainer/models/imported/program.h"

namespace lockstep::exported {

// `shared` must exist as long as the program runs. With ranks, throws Error (kUsage) if a norm of batches cannot share its
// statistics. Returns how many norms of batches there are.
int64_t Fuse(Program& program, const SharedStatistics& shared);

}  // namespace lockstep::exported
