// Times one collective on a buffer of a given size, as nccl-tests does.
//
//   algorithm bandwidth = bytes / time
//   bus bandwidth = algorithm bandwidth * 2(n-1)/n for an all-reduce of n ranks, (n-1)/n for a
//     reduce-scatter or an all-gather. The bus bandwidth is the traffic on one link, so it can be compared with
//     the link's peak for any n
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
  double time_us = 0;  // the median time of a collective; on a GPU measured with CUDA events
  double algbw_gbs = 0;
  double busbw_gbs = 0;
  int64_t wrong = 0;  // how many elements of this rank's result are wrong
};

struct CollectiveBench {
  Op op = Op::kAllReduce;  // kAllReduce, kReduceScatter or kAllGather
  at::ScalarType dtype = at::kFloat;
  int warmup = 5;
  int iterations = 30;
};

// Measures the collective on a buffer of `bytes`, rounded up to a whole number of elements for each rank. The buffer
// comes from Communicator::Allocate, like the buffers of the gradients. Every rank must call this function. Throws
// Error (kPeer) if the collective fails.
CollectiveTiming Time(const CollectiveBench& bench, int64_t bytes, Communicator& communicator,
                      at::Device device);

}  // namespace lockstep
