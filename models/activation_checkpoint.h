// Activation checkpointing (Chen et al. 2016): the forward of a block keeps only the block's inputs. The backward of
// the block first computes its forward again, with the same random numbers, rounding and copies of weights.
//
// Invariants:
//   1. The block's parameters get the same gradients as without checkpointing. This is the reentrant form of
//      torch.utils.checkpoint, so a parameter of a checkpointed block must not be used outside the block.
//   2. State that a forward must change only once, such as running statistics, is changed only by the first
//      computation. In the second computation IsRecomputing() is true.
//   3. Activation checkpointing also works while a CUDA graph is captured (tests/memory_test.py).
//
// what can fail -> what the caller sees -> the test that shows it
//   the block gives other tensors the second time -> c10::Error from backward; of the same shapes: wrong
//     gradients -> ActivationCheckpoint.RefusesABlockThatChanges
//   the block gives a parameter or an input as it is -> nothing: its gradient comes as if it had been called
//     -> ActivationCheckpoint.MayReturnAParameterAndAnInput
//   a parameter of the block is used elsewhere, too -> see comm/reduce/reducer.h
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lockstep {

using ActivationBlock = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// Returns block(inputs). The inputs are floating-point tensors on one device. The inputs are kept, and backward
// computes the block again. If no input needs a gradient, or grad mode is off, it only calls the block.
std::vector<at::Tensor> CheckpointActivations(const std::vector<at::Tensor>& inputs,
                                              ActivationBlock block);

// Returns whether this thread is computing a block again in backward.
bool IsRecomputing();

}  // namespace lockstep
