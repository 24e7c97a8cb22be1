// Fuse(): puts trainer/ops's operations where an exported graph has the chains of LibTorch's that they stand for.
//
//   batch_norm [-> add of another branch] [-> relu]           BatchNorm()
//   batch_norm -> silu, batch_norm -> hardswish               BatchNorm()
//   two batch_norms -> add -> relu                            JoinBatchNorms()
//   batch_norm -> relu -> max_pool2d of 3, stride 2           NormPool()
//   layer_norm of the last dimension                          LayerNorm()
//
// A norm is fused if it uses the statistics of its batch, and if nobody else uses what lies between. The rest of a chain
// moves to where its last operation stood, so a chain is left as it is if an operation between changes a tensor in place.
//
// Under autocast a layer_norm of 16-bit values gives float32 values. If everybody who uses them rounds them to 16 bits
// again (linear, conv2d), LayerNorm() gives them so at once.
#pragma once

#include "trainer/models/imported/program.h"

namespace lockstep::exported {

void Fuse(Program& program);

}  // namespace lockstep::exported
