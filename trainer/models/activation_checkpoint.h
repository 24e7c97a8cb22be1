// Activation checkpointing (Chen et al. 2016): a block's forward keeps only its inputs. Its backward computes the
// block again, with the same random numbers, rounding and copies of weights, and goes on from there.
//
// Invariants:
//   1. The block's parameters get their gradients as if the block had been called: this is torch.utils.checkpoint's
//      reentrant form. A parameter of a checkpointed block must be used nowhere else.
//   2. State that a forward must change only once, such as running statistics, is changed by the first computation:
//      IsRecomputing() is true in the second.
//   3. Works while a CUDA graph is captured (tests/memory_test.py).
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

// block(inputs), floating-point tensors on one device. Where none of them needs a gradient, or grad mode is
// off, it is just that.
std::vector<at::Tensor> CheckpointActivations(const std::vector<at::Tensor>& inputs,
                                              ActivationBlock block);

// Whether this thread computes a block once more.
bool IsRecomputing();

}  // namespace lockstep
