// Activation checkpointing (Chen et al. 2016): the forward of a block keeps only the block's inputs for backward. The
// backward of the block first computes the block's forward again, with the same random numbers, rounding and copies of
// weights.
//
// Invariants:
//   1. The block's parameters get the same gradients as without checkpointing. As in the reentrant form of
//      torch.utils.checkpoint, the backward of a block is a backward pass of its own inside the outer one. A parameter
//      that is also used outside the block would get its gradient in two parts, so a parameter of a checkpointed block
//      must not be used outside the block.
//   2. A block must change state, such as running statistics, only in the first computation. In the second computation
//      IsRecomputing() is true, so that the block can tell the two apart.
//   3. A step that uses activation checkpointing can be captured in a CUDA graph (tests/memory_test.py).
//
// what can fail -> what the caller sees -> the test that shows it
//   the second call of the block returns another number of tensors, or tensors of other sizes -> c10::Error from
//     backward -> ActivationCheckpoint.RefusesABlockThatChanges
//   the second call of the block returns tensors of the same sizes with other values -> no error, but wrong gradients
//     -> (none)
//   the block returns a parameter or one of its inputs unchanged -> no error: the gradients are the same as without
//     checkpointing -> ActivationCheckpoint.MayReturnAParameterAndAnInput
//   a parameter of the block is also used outside the block -> see comm/reduce/reducer.h
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lockstep {

using ActivationBlock = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// Returns block(inputs). The inputs are floating-point tensors on one device. The function keeps the inputs, and the
// backward pass calls the block again. If no input needs a gradient, or grad mode is off, the function only calls the
// block.
std::vector<at::Tensor> CheckpointActivations(const std::vector<at::Tensor>& inputs,
                                              ActivationBlock block);

// Returns whether this thread is computing a block again in backward.
bool IsRecomputing();

}  // namespace lockstep
