// Computes histograms of the trained parameters and of their gradients on the parameters' device.
//
// Promise: the ranges (bins), the counts and the sums are those that torch.utils.tensorboard's
// SummaryWriter.add_histogram(bins="tensorflow") writes for the same values, except that values beyond the outermost
// bounds, about -1e20 and 1e20, are counted in the outermost ranges.
//
// Invariants:
//   1. The gradients in the histograms are the sums over all ranks, divided by `loss_scale`, before clipping.
//   2. If no sharded optimizer is used, only rank 0 computes histograms, and no rank communicates. With a sharded
//      optimizer each rank computes the histograms of its shards, and these are summed over the ranks.
//   3. Besides the memory of its result, HistogramsOf() needs memory for a few tensors of at most 2^20 values each.
//   4. The host waits in HistogramsOf() for the device.
//
// what can fail -> what the caller sees -> the test that shows it (tests/sinks_test.py)
//   values that are not finite -> these values are not counted; a tensor without finite values has no histogram
//     -> test_histograms_leave_out_what_is_not_finite
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/tensor/named_tensor.h"
#include "comm/communicator.h"
#include "comm/reduce/reducer.h"
#include "observe/histogram.h"

namespace lockstep {

// Returns, on rank 0, two histograms for each of `parameters`, in their order: parameters/NAME and gradients/NAME.
// Returns nothing on other ranks. `reducer` holds the gradients, and `loss_scale` (0-dimensional) is the factor by
// which the gradients were multiplied. `sharded` says whether a sharded optimizer is used. Every rank must call
// HistogramsOf(), after Reducer::Wait() and before the update. Throws Error (kPeer).
std::vector<Histogram> HistogramsOf(const std::vector<NamedTensor>& parameters,
                                    const Reducer& reducer, const at::Tensor& loss_scale,
                                    bool sharded, Communicator& host);

}  // namespace lockstep
