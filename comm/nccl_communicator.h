// The NCCL communicator: collectives between GPUs on a separate stream.
//
// Promise: the communicator keeps the promise of comm/communicator.h for tensors on `device`. Sums and gathers accept
// the dtypes uint8, int32, int64, float16, bfloat16, float32 and float64, and a broadcast accepts any dtype. Operations
// can be captured in a CUDA graph, if the caller's current stream is being captured.
//
// How an operation is ordered among the other work, without the host ever waiting:
//   1. record an event on the caller's current stream; the communication stream waits for it
//   2. enqueue the collective on the communication stream
//   3. record a second event behind the collective. A call of Wait() makes the stream that is current at the time of
//      the call wait for this event
// The operation keeps references to its tensors until Wait(), so that the allocator does not give their memory to other
// work before the operation is done. The second event also tells Poll() that the operation is done. Events are reused.
//
// Collectives that are captured into a graph are not in the flight record, because they do not run yet, and because a
// capture may fail on one rank alone. Replay() records the replays.
//
// Allocate(): buffers of up to 16 MiB come from ncclMemAlloc and lie in a symmetric window of all ranks. These figures
// compare an all-reduce in such a window with torch.distributed's all-reduce in plain memory. On 2 and 4 H200, 1 MiB
// took 0.75 of torch.distributed's time, and 4 MiB took 0.88 of it. From 25 MiB on an all-reduce took 0.97 of the time
// on 2 GPUs and 1.06 on 4 GPUs. From 64 MiB on it took 1.1 to 1.3 of the time on 2 and 4 GPUs. Buffers of more than 16
// MiB therefore stay in plain memory. (Registration without a window made no difference to the all-reduce.)
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

// `bootstrap` sends NCCL's unique id to all ranks, and gives this process's rank and the world size. Keeps a reference
// to `recorder`. Throws Error: kUsage if the NCCL library that is loaded has another version than the one that Lockstep
// was built for, kPeer if the ranks cannot connect.
std::unique_ptr<Communicator> MakeNccl(at::Device device, Communicator& bootstrap,
                                       FlightRecorder& recorder);

}  // namespace lockstep
