// Times one collective over buffers of several sizes, as nccl-tests does.
//
//   algorithm bandwidth = bytes / time
//   bus bandwidth = algorithm bandwidth * 2(n-1)/n for an all-reduce of n ranks, (n-1)/n for a
//     reduce-scatter or an all-gather. This is the traffic on one link, so it can be compared with the link's
//     peak for any n
// "bytes" is the size of the whole buffer: the input of a reduce-scatter, the output of an all-gather.
// (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md)
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

#include "comm/communicator.h"

namespace lockstep {

struct CollectiveTiming {
  int64_t bytes = 0;
  double time_us = 0;  // median; of the device where there is one
  double algbw_gbs = 0;
  double busbw_gbs = 0;
  int64_t wrong = 0;  // elements of the result that are not what they should be, on this rank
};

struct CollectiveBench {
  Op op = Op::kAllReduce;  // or kReduceScatter or kAllGather
  at::ScalarType dtype = at::kFloat;
  int warmup = 5;
  int iterations = 30;
};

// Times `bytes`, rounded up to whole elements for every rank. Memory is Communicator::Allocate's, as
// the gradients' is. Every rank must call it. Throws Error.
CollectiveTiming Time(const CollectiveBench& bench, int64_t bytes, Communicator& communicator,
                      at::Device device);

}  // namespace lockstep
