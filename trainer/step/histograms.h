// Computes histograms of the trained parameters and of their gradients on the parameters' device.
//
// Promise: the ranges, the counts and the sums are those that torch.utils.tensorboard's
// SummaryWriter.add_histogram(bins="tensorflow") writes for the same values. Values beyond the last range, which ends
// at 1e20, are counted in the last range.
//
// Invariants:
//   1. The gradients are the sums over all ranks, without the loss scale, before clipping.
//   2. If no sharded optimizer is used, only rank 0 computes, and no rank communicates. With a sharded optimizer each
//      rank computes with its shards, and the results are summed over the ranks.
//   3. Besides its result, HistogramsOf() needs memory for a few copies of at most 2^20 values.
//   4. HistogramsOf() makes the host wait for the device.
//
// what can fail -> what the caller sees -> the test that shows it (tests/sinks_test.py)
//   values that are not finite -> they are not counted; a tensor without finite values has no histogram
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
// which they are multiplied. `sharded` says that each rank holds only its shards. Every rank must call it, after
// Reducer::Wait() and before the update. Throws Error (kPeer).
std::vector<Histogram> HistogramsOf(const std::vector<NamedTensor>& parameters,
                                    const Reducer& reducer, const at::Tensor& loss_scale,
                                    bool sharded, Communicator& host);

}  // namespace lockstep
